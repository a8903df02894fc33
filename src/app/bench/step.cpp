#include "tutti/base/error.hpp"

#include "bench.hpp"
#include "run_reports.hpp"
#include "streams_and_signals.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
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

// The phases from the start of the process to the end of its first step: loading libraries and parsing the command
// line, MPI, making processor, data and network, making plans and initial weights, and the step.
constexpr std::array kStartPhases{"program", "mpi", "assembly", "plans", "step"};

double sum_of(const std::vector<double>& seconds) { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

struct StepFigures {
  std::vector<double> start;  // seconds by phase, of the rank that was the last to end its first step
  std::vector<double> steps{};
  double peak_mib = 0;
};

StepFigures measure(World& world, const Invocation& invocation, PreparedTraining& run) {
  std::vector<double> times{invocation.world_begun_at, invocation.world_made_at, run.assembled_at,
                            seconds_since_process_start()};
  run.trainer->step();
  run.trainer->synchronize();
  times.push_back(seconds_since_process_start());
  std::adjacent_difference(times.begin(), times.end(), times.begin());
  StepFigures figures{.start = std::ranges::max(all_gather_doubles(world, times), {}, sum_of)};
  TimedSteps steps = invocation.steps;
  --steps.warmup;  // done above
  figures.steps =
      time_steps(world, *run.trainer, steps_for(*run.assembly.processor.backend, steps), [&] { run.trainer->step(); });
  figures.peak_mib = max_over_ranks(world, {peak_resident_mib()}).front();
  return figures;
}

// Prints the figures on rank 0 and returns them as JSON.
Json report(World& world, const StepFigures& figures, const Assembly& assembly) {
  const RunConfig& config = assembly.config;
  const std::string libraries = versions_text(*assembly.processor.backend, world);
  const Quartiles step = quartiles_of(figures.steps);
  const double images_per_second = static_cast<double>(config.trainer.batch_size) / step.median;
  const std::vector<double>& start = figures.start;
  const double first_step = sum_of(start);
  const double start_seconds = first_step - start[1] - step.median;  // without MPI and one step
  if (world.rank() == 0) {
    fmt::print("{}\n", libraries);
    fmt::print("{} {}, batch {} in {} of {}, data {}\n", config.model, name_of(*config.processor.precision),
               config.trainer.batch_size, plural(config.trainer.num_parts, "part"),
               plural(config.trainer.threads, "thread"), config.data.train);
    fmt::print("{:>10} {:>9} {:>9} {:>10} {:>9} {:>13}\n", "median ms", "25 % ms", "75 % ms", "images/s", "peak MiB",
               "first step s");
    fmt::print("{:>10.2f} {:>9.2f} {:>9.2f} {:>10.1f} {:>9.0f} {:>13.2f}\n", step.median * 1e3, step.low * 1e3,
               step.high * 1e3, images_per_second, figures.peak_mib, first_step);
    fmt::print(
        "first step: program {:.3f} s, MPI {:.3f}, assembly {:.3f}, plans {:.3f}, step {:.3f}; start-up without MPI "
        "and one step {:.3f} s\n",
        start[0], start[1], start[2], start[3], start[4], start_seconds);
  }
  Json json{{"bench", "step"},
            {"libraries", libraries},
            {"model", config.model},
            {"data", config.data.train},
            {"precision", name_of(*config.processor.precision)},
            {"batch", config.trainer.batch_size},
            {"ranks", world.size()},
            {"parts", config.trainer.num_parts},
            {"threads", config.trainer.threads},
            {"step_seconds_median", step.median},
            {"step_seconds_low_quartile", step.low},
            {"step_seconds_high_quartile", step.high},
            {"step_seconds", figures.steps},
            {"images_per_second", images_per_second},
            {"peak_resident_mib", figures.peak_mib},
            {"first_step_seconds", first_step},
            {"start_seconds", start_seconds}};
  for (std::size_t i = 0; i < kStartPhases.size(); ++i) {
    json[fmt::format("start_{}_seconds", kStartPhases[i])] = start[i];
  }
  return json;
}

}  // namespace

ExitStatus bench_step(World& world, const Invocation& invocation, CommandContext& /*context*/) {
  const TimedSteps& steps = invocation.steps;
  PreparedTraining run(world, config_for_steps(invocation, steps.warmup + steps.timed));
  const StepFigures figures = measure(world, invocation, run);
  write_json(world, invocation.json, report(world, figures, run.assembly));
  return ExitStatus::done;
}

}  // namespace tutti
