#include "tutti/base/error.hpp"

#include "bench.hpp"
#include "run_reports.hpp"
#include "streams_and_signals.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

// The peak of this program; getrusage also counts the program that executed it.
double peak_resident_mib() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  }
  throw Error(ErrorSource::io, "cannot read this process's memory from /proc/self/status: is /proc mounted?");
}

// The seconds from the start of the process to the end of its first step.
struct Start {
  double program = 0;  // loading libraries, parsing the command line
  double mpi = 0;
  double assembly = 0;  // processor, data, network
  double plans = 0;     // and initial weights
  double first_step = 0;

  double total() const { return program + mpi + assembly + plans + first_step; }
};

struct StepFigures {
  std::vector<double> steps;
  Quartiles step;
  double images_per_second = 0;
  Start start{};
  double peak_mib = 0;

  // The start-up time without the start of MPI and the time of one step.
  double start_seconds() const { return start.total() - start.mpi - step.median; }
};

// The times of the rank that was the last to end its first step.
Start slowest_start(World& world, const Start& mine) {
  const auto ranks =
      all_gather_doubles(world, {mine.program, mine.mpi, mine.assembly, mine.plans, mine.first_step, mine.total()});
  const auto& last = *std::ranges::max_element(ranks, {}, [](const auto& figures) { return figures.back(); });
  return {.program = last[0], .mpi = last[1], .assembly = last[2], .plans = last[3], .first_step = last[4]};
}

StepFigures measure(World& world, const Invocation& invocation, PreparedTraining& run) {
  const double planned_at = seconds_since_process_start();
  run.trainer->step();
  run.trainer->synchronize();
  StepFigures figures;
  figures.start = slowest_start(world, {.program = invocation.world_begun_at,
                                        .mpi = invocation.world_made_at - invocation.world_begun_at,
                                        .assembly = run.assembled_at - invocation.world_made_at,
                                        .plans = planned_at - run.assembled_at,
                                        .first_step = seconds_since_process_start() - planned_at});
  TimedSteps steps = invocation.steps;
  --steps.warmup;  // done above
  figures.steps =
      time_steps(world, *run.trainer, steps_for(*run.assembly.backend, steps), [&] { run.trainer->step(); });
  figures.step = quartiles_of(figures.steps);
  figures.images_per_second = static_cast<double>(run.assembly.config.batch_size) / figures.step.median;
  figures.peak_mib = max_over_ranks(world, {peak_resident_mib()}).front();
  return figures;
}

void print(const StepFigures& figures, const RunConfig& config, const std::string& libraries) {
  fmt::print("{}\n", libraries);
  fmt::print("{} {}, batch {} in {} of {}, data {}\n", config.model, name_of(*config.precision), config.batch_size,
             plural(config.parts, "part"), plural(config.threads, "thread"), config.data);
  fmt::print("{:>10} {:>9} {:>9} {:>10} {:>9} {:>13}\n", "median ms", "25 % ms", "75 % ms", "images/s", "peak MiB",
             "first step s");
  fmt::print("{:>10.2f} {:>9.2f} {:>9.2f} {:>10.1f} {:>9.0f} {:>13.2f}\n", figures.step.median * 1e3,
             figures.step.low * 1e3, figures.step.high * 1e3, figures.images_per_second, figures.peak_mib,
             figures.start.total());
  const Start& start = figures.start;
  fmt::print(
      "first step: program {:.3f} s, MPI {:.3f}, assembly {:.3f}, plans {:.3f}, step {:.3f}; start-up without MPI and "
      "one "
      "step {:.3f} s\n",
      start.program, start.mpi, start.assembly, start.plans, start.first_step, figures.start_seconds());
}

Json as_json(const StepFigures& figures, const RunConfig& config, const std::string& libraries, int ranks) {
  return {{"bench", "step"},
          {"libraries", libraries},
          {"model", config.model},
          {"data", config.data},
          {"precision", name_of(*config.precision)},
          {"batch", config.batch_size},
          {"ranks", ranks},
          {"parts", config.parts},
          {"threads", config.threads},
          {"step_seconds_median", figures.step.median},
          {"step_seconds_low_quartile", figures.step.low},
          {"step_seconds_high_quartile", figures.step.high},
          {"step_seconds", figures.steps},
          {"images_per_second", figures.images_per_second},
          {"peak_resident_mib", figures.peak_mib},
          {"first_step_seconds", figures.start.total()},
          {"start_seconds", figures.start_seconds()},
          {"start_program_seconds", figures.start.program},
          {"start_mpi_seconds", figures.start.mpi},
          {"start_assembly_seconds", figures.start.assembly},
          {"start_plans_seconds", figures.start.plans},
          {"start_step_seconds", figures.start.first_step}};
}

}  // namespace

ExitStatus bench_step(World& world, const Invocation& invocation, CommandContext& /*context*/) {
  const TimedSteps& steps = invocation.steps;
  PreparedTraining run(world, config_for_steps(invocation, steps.warmup + steps.timed));
  const StepFigures figures = measure(world, invocation, run);
  const RunConfig& config = run.assembly.config;
  const std::string libraries = versions_text(*run.assembly.backend, world);
  if (world.rank() == 0) print(figures, config, libraries);
  write_json(world, invocation.json, as_json(figures, config, libraries, world.size()));
  return ExitStatus::done;
}

}  // namespace tutti
