#include "tutti/base/error.hpp"

#include "bench.hpp"
#include "process_clock.hpp"
#include "readied.hpp"
#include "run_record.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include <string>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

double peak_resident_mib() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) throw Error(ErrorSource::internal, "getrusage failed");
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

struct StepFigures {
  Spread step;
  double images_per_second = 0;
  double first_step = 0;  // seconds from the start of the process to the end of its first step
  double peak_mib = 0;
};

StepFigures measure(World& world, Readied& run, TimedSteps steps) {
  run.trainer->step();
  run.trainer->settle();
  StepFigures figures{.step = {}, .first_step = greatest_of_ranks(world, {seconds_since_process_start()}).front()};
  --steps.warmup;  // done above
  figures.step =
      spread_of(time_steps(world, *run.trainer, steps_for(*run.assembly.backend, steps), [&] { run.trainer->step(); }));
  figures.images_per_second = static_cast<double>(run.assembly.config.batch_size) / figures.step.median;
  figures.peak_mib = greatest_of_ranks(world, {peak_resident_mib()}).front();
  return figures;
}

void tell(const StepFigures& figures, const RunConfig& config, const std::string& libraries) {
  fmt::print("{}\n", libraries);
  fmt::print("{} {}, batch {} in {} parts of {} threads, data {}\n", config.model, config.precision, config.batch_size,
             config.parts, config.threads, config.data);
  fmt::print("{:>10} {:>9} {:>9} {:>10} {:>9} {:>13}\n", "median ms", "25 % ms", "75 % ms", "images/s", "peak MiB",
             "first step s");
  fmt::print("{:>10.2f} {:>9.2f} {:>9.2f} {:>10.1f} {:>9.0f} {:>13.2f}\n", figures.step.median * 1e3,
             figures.step.low * 1e3, figures.step.high * 1e3, figures.images_per_second, figures.peak_mib,
             figures.first_step);
}

Json as_json(const StepFigures& figures, const RunConfig& config, const std::string& libraries, int ranks) {
  return {{"bench", "step"},
          {"libraries", libraries},
          {"model", config.model},
          {"data", config.data},
          {"precision", config.precision},
          {"batch", config.batch_size},
          {"ranks", ranks},
          {"parts", config.parts},
          {"threads", config.threads},
          {"step_seconds_median", figures.step.median},
          {"step_seconds_low_quartile", figures.step.low},
          {"step_seconds_high_quartile", figures.step.high},
          {"images_per_second", figures.images_per_second},
          {"peak_resident_mib", figures.peak_mib},
          {"first_step_seconds", figures.first_step}};
}

}  // namespace

ExitStatus bench_step(World& world, const Invocation& invocation) {
  const TimedSteps& steps = invocation.steps;
  Readied run(world, config_for_steps(invocation, steps.warmup + steps.timed));
  const StepFigures figures = measure(world, run, steps);
  const RunConfig& config = run.assembly.config;
  const std::string libraries = versions_text(run.assembly, world);
  if (world.rank() == 0) tell(figures, config, libraries);
  write_bench_json(world, invocation.json, as_json(figures, config, libraries, world.size()).dump(2) + "\n");
  return ExitStatus::done;
}

}  // namespace tutti
