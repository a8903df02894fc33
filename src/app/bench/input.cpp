#include "tutti/base/timing.hpp"

#include "bench.hpp"
#include "input_rates.hpp"
#include "step_by_hand.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRounds = 3;
constexpr int kMaxReaders = 4;

LoaderPlan plan_of(const Assembly& assembly, const World& world, int readers) {
  const TrainerOptions& options = assembly.config.trainer;
  LoaderPlan plan = plan_by_hand(assembly, PartMap(options.num_parts, world.size()).parts_of(world.rank()));
  plan.last_batch = LastBatch::rollover;
  plan.steps_ahead = std::max(1, options.steps_ahead);
  plan.readers = readers;
  return plan;
}

std::int64_t samples_of(const StepBatches& step) {
  std::int64_t samples = 0;
  for (const Batch& batch : step.batches) samples += batch.samples;
  return samples;
}

// Images/s of all ranks together. `work` does one step and returns its images; the first few are not measured.
double measure(World& world, double seconds, const std::function<std::int64_t()>& work) {
  for (int i = 0; i < 3; ++i) work();
  world.barrier();
  const Stopwatch watch;
  std::int64_t images = 0;
  while (watch.seconds() < seconds) images += work();
  double all = 0;
  for (const auto& rank : all_gather_doubles(world, {static_cast<double>(images) / watch.seconds()}))
    all += rank.front();
  return all;
}

struct InputAlone {
  double images_per_second = 0;
  PreparedImages prepared;
};

InputAlone input_alone(World& world, const Assembly& assembly, int readers, double seconds) {
  BatchLoader loader(*assembly.data.train, *assembly.processor.backend, plan_of(assembly, world, readers));
  const auto stream = assembly.processor.backend->make_stream();
  const double rate = measure(world, seconds, [&] { return samples_of(loader.next(*stream)); });
  return {rate, loader.prepared()};
}

// Of compute alone, and with the input. Measures both in alternation, so that a machine that slows down affects both.
std::pair<double, double> compute_rates(World& world, const Assembly& assembly, double seconds) {
  std::optional<StepByHand> step;
  assembly.processor.backend->enter_compute_thread(assembly.config.trainer.threads);
  run_or_throw_on_all(world, [&] {
    step.emplace(assembly, *assembly.communicator, plan_of(assembly, world, assembly.config.trainer.readers));
  });
  const auto compute = [&](const StepBatches& batches) {
    step->compute(batches);
    return samples_of(batches);
  };
  std::vector<double> alone;
  std::vector<double> together;
  for (int round = 0; round < kRounds; ++round) {
    const StepBatches& same = step->loader.next(*step->stream);
    alone.push_back(measure(world, seconds, [&] { return compute(same); }));
    together.push_back(measure(world, seconds, [&] { return compute(step->loader.next(*step->stream)); }));
  }
  return {quartiles_of(alone).median, quartiles_of(together).median};
}

}  // namespace

ExitStatus bench_input(World& world, const Invocation& invocation, CommandContext& /*context*/) {
  const double seconds = invocation.input_seconds;
  const Log log(world.rank(), world.host(), invocation.run.output.quiet);
  const Assembly assembly = assemble(world, invocation.run, log);
  const Cores& cores = assembly.cores;
  const int readers = assembly.config.trainer.readers;
  if (world.rank() == 0) {
    fmt::print("{}, {} on this host of {} and {} each\n", plural(cores.usable, "usable core"),
               plural(world.local_size(), "rank"), plural(assembly.config.trainer.threads, "compute thread"),
               plural(readers, "reader"));
    fmt::print("{:>8} {:>8} {:>12}\n", "what", "readers", "images/s");
  }
  Json results = Json::array();
  const auto report = [&](const char* what, int reader_threads, double images_per_second) {
    if (world.rank() != 0) return;
    fmt::print("{:>8} {:>8} {:>12.0f}\n", what, reader_threads > 0 ? fmt::format("{}", reader_threads) : "-",
               images_per_second);
    std::fflush(stdout);
    results.push_back({{"what", what}, {"readers", reader_threads}, {"images_per_second", images_per_second}});
  };
  const int max_readers = std::clamp(cores.usable / world.local_size(), readers, kMaxReaders);
  PreparedImages prepared;
  for (int count = 1; count <= max_readers; ++count) {
    const InputAlone input = input_alone(world, assembly, count, seconds);
    if (count == 1) prepared = input.prepared;
    report("input", count, input.images_per_second);
  }
  const auto [alone, together] = compute_rates(world, assembly, seconds);
  report("compute", 0, alone);
  report("together", readers, together);
  const InputRates rates = input_rates(world, prepared, alone / world.size());
  if (world.rank() == 0) {
    fmt::print("together / compute alone = {:.3f}\n", together / alone);
    fmt::print("{}\n", rates_text(rates, assembly.processor.all_on_gpus));
    fmt::print("with {}, {}\n", plural(readers, "reader"),
               rates.suffices(readers) ? "images wait for the network" : "the network waits for images");
  }
  write_json(world, invocation.json,
             Json{{"bench", "input"},
                  {"model", assembly.config.model},
                  {"data", assembly.config.data.train},
                  {"augment", assembly.config.texts.augment},
                  {"usable_cores", cores.usable},
                  {"local_ranks", world.local_size()},
                  {"compute_threads", assembly.config.trainer.threads},
                  {"readers_budgeted", readers},
                  {"together_over_compute", together / alone},
                  {"core_images_per_second", rates.core},
                  {"rank_images_per_second", rates.rank},
                  {"results", results}});
  return ExitStatus::done;
}

}  // namespace tutti
