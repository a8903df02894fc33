#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/train/trainer.hpp"

#include "assemble.hpp"
#include "bench.hpp"
#include "plan_choices.hpp"
#include "resolve_options.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <string>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

// One line of the table.
struct Point {
  std::string mode;
  int ranks = 1;
  std::int64_t batch = 0;
  bool oversubscribed = false;
  Spread step;

  double images_per_second() const { return static_cast<double>(batch) / step.median; }
};

// Every rank count runs the same steps on as many threads a rank, so that only the ranks differ.
RunConfig config_for(const Invocation& invocation, const std::string& mode, int ranks, const Cores& cores,
                     int ranks_on_host) {
  RunConfig config = config_for_steps(invocation, invocation.steps.warmup + invocation.steps.timed);
  if (config.threads == 0) config.threads = std::max(1, cores.usable / ranks_on_host);
  if (config.exchange == "auto") config.exchange = "ring";
  if (mode == "weak") config.batch_size *= ranks;
  config.parts = ranks;
  return config;
}

Point measure(World& world, const RunConfig& config, const TimedSteps& steps, const std::string& mode) {
  const Log log(world.rank(), world.host(), true);
  const Assembly assembly = assemble(world, config, nullptr, log);
  std::optional<Trainer> trainer;
  build_alike(world, assembly.config, *assembly.backend,
              [&] { trainer.emplace(assembly.parts(), assembly.options, RunFacts{}); });
  const std::int64_t busy = config.threads * world.local_size();
  return {
      .mode = mode,
      .ranks = world.size(),
      .batch = config.batch_size,
      .oversubscribed = busy > assembly.cores.usable,
      .step = spread_of(time_steps(world, *trainer, steps_for(*assembly.backend, steps), [&] { trainer->step(); }))};
}

double efficiency(const Point& point, const Point& first) {
  return point.images_per_second() / first.images_per_second() * first.ranks / point.ranks;
}

void tell(const Point& point, const Point& first) {
  fmt::print("{:>6} {:>5} {:>7} {:>10.2f} {:>9.2f} {:>9.2f} {:>10.0f} {:>10.2f}{}\n", point.mode, point.ranks,
             point.batch, point.step.median * 1e3, point.step.low * 1e3, point.step.high * 1e3,
             point.images_per_second(), efficiency(point, first), point.oversubscribed ? "  oversubscribed" : "");
  std::fflush(stdout);
}

Json as_json(const Point& point, const Point& first) {
  return {{"mode", point.mode},
          {"ranks", point.ranks},
          {"batch", point.batch},
          {"step_seconds_median", point.step.median},
          {"step_seconds_low_quartile", point.step.low},
          {"step_seconds_high_quartile", point.step.high},
          {"images_per_second", point.images_per_second()},
          {"efficiency", efficiency(point, first)},
          {"oversubscribed", point.oversubscribed}};
}

}  // namespace

ExitStatus bench_scaling(World& world, const Invocation& invocation) {
  const Cores cores = count_cores(world);
  std::vector<int> counts;
  run_agreed(world, [&] { counts = parse_rank_counts(invocation.ranks, world.size()); });
  if (world.rank() == 0) {
    fmt::print("{:>6} {:>5} {:>7} {:>10} {:>9} {:>9} {:>10} {:>10}\n", "mode", "ranks", "batch", "median ms", "25 % ms",
               "75 % ms", "images/s", "efficiency");
  }
  Json results = Json::array();
  for (const std::string mode : {"strong", "weak"}) {
    if (invocation.scaling.mode != "both" && invocation.scaling.mode != mode) continue;
    std::optional<Point> first;
    for (const int count : counts) {
      on_first_ranks(world, count, [&](World& working) {
        const RunConfig config = config_for(invocation, mode, count, cores, world.local_size());
        const Point point = measure(working, config, invocation.steps, mode);
        if (!first) first = point;
        if (world.rank() != 0) return;
        tell(point, *first);
        results.push_back(as_json(point, *first));
      });
    }
  }
  write_bench_json(world, invocation.json,
                   Json{{"bench", "scaling"}, {"model", invocation.run.model}, {"results", results}}.dump(2) + "\n");
  return ExitStatus::done;
}

}  // namespace tutti
