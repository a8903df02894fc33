#include "bench.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/stopwatch.hpp"
#include "tutti/storage/whole_file.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

namespace tutti {

void on_first_ranks(World& world, int ranks, const std::function<void(World& working)>& work) {
  on_ranks(world, world.rank() < ranks, work);
}

void on_ranks(World& world, bool works, const std::function<void(World& working)>& work) {
  const auto working = world.split(works ? 0 : -1);
  std::optional<Error> shared;
  try {
    if (working) work(*working);
  } catch (const Error& error) {
    if (error.reach() == ErrorReach::this_rank) throw;
    shared = error;
  }
  if (working) working->close();  // there may be hundreds
  run_agreed(world, [&] {
    if (shared) throw *shared;
  });
}

RunConfig config_for_steps(const Invocation& invocation, std::int64_t steps) {
  RunConfig config = invocation.run;
  if (!invocation.given.contains("data")) config.data = "synthetic:4096x1x28x28:10";
  config.steps = steps;
  config.epochs = 1'000'000;
  config.test_every = 0;
  return config;
}

TimedSteps steps_for(const Backend& backend, TimedSteps steps) {
  if (backend.memory_space() != MemorySpace::host) steps.at_once = 10;
  return steps;
}

std::vector<double> time_steps(World& world, Trainer& trainer, const TimedSteps& steps,
                               const std::function<void()>& step) {
  for (std::int64_t i = 0; i < steps.warmup; ++i) step();
  trainer.settle();
  std::vector<double> seconds;
  for (std::int64_t done = 0; done < steps.timed;) {
    const std::int64_t several = std::min(steps.at_once, steps.timed - done);
    const Stopwatch watch;
    for (std::int64_t i = 0; i < several; ++i) step();
    trainer.settle();
    seconds.push_back(watch.seconds() / static_cast<double>(several));
    done += several;
  }
  return greatest_of_ranks(world, std::move(seconds));
}

void write_bench_json(World& world, const std::string& path, const std::string& json) {
  run_agreed(world, [&] {
    if (world.rank() == 0 && !path.empty()) write_whole(path, std::as_bytes(std::span(json)));
  });
}

}  // namespace tutti
