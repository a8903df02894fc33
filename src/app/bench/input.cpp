#include "tutti/base/log.hpp"
#include "tutti/base/stopwatch.hpp"
#include "tutti/data/batch_loader.hpp"
#include "tutti/nn/part_context.hpp"
#include "tutti/train/run_observer.hpp"

#include "assemble.hpp"
#include "bench.hpp"
#include "plural.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRounds = 3;
constexpr int kMostReaders = 4;

LoaderPlan plan_of(const Assembly& assembly, const World& world, int readers) {
  const TrainerOptions& options = assembly.options;
  return {.batch_size = options.batch_size,
          .num_parts = options.num_parts,
          .parts = PartPlan(options.num_parts, world.size()).parts_of(world.rank()),
          .last_batch = LastBatch::rollover,
          .order = {.shuffle = options.shuffle, .seed = options.seed},
          .steps_ahead = std::max(1, options.steps_ahead),
          .readers = readers,
          .recipe = options.recipe};
}

std::int64_t samples_of(const StepBatches& step) {
  std::int64_t samples = 0;
  for (const Batch& batch : step.batches) samples += batch.samples;
  return samples;
}

// Forward, loss and backward of this rank's parts, without exchange or optimizer.
class Compute {
 public:
  Compute(const Assembly& assembly, const BatchLoader& loader)
      : backend_(*assembly.backend),
        stream_(entered(backend_, assembly.options.threads).make_stream()),
        arena_(assembly.network->layout(), backend_, backend_.allocate(assembly.network->layout().block_bytes())),
        weights_(*assembly.network, backend_, arena_.weights()),
        part_(*assembly.network, weights_, backend_),
        sums_(backend_.allocate(LossSums::kFigures * sizeof(std::int64_t))) {
    for (const std::int64_t samples : loader.slice_sizes()) part_.plan(samples, LayerMode::training);
    initialize(*assembly.network, assembly.options.initializer, assembly.options.seed, backend_, arena_.weights());
    weights_.refresh(*stream_);
  }

  Stream& stream() const { return *stream_; }

  void play(const StepBatches& step) {
    const Tensor sums = sums_.view(Shape{LossSums::kFigures}, ElementType::i64);
    for (const Batch& batch : step.batches) {
      if (batch.samples == 0) continue;
      part_.forward(*stream_, batch.images, LayerMode::training);
      part_.loss(*stream_, batch.labels, 1.0f / static_cast<float>(step.global_samples), sums);
      part_.backward(*stream_, arena_.gradients(), 1, [](std::int64_t) {});
    }
    stream_->synchronize();
  }

 private:
  static Backend& entered(Backend& backend, int threads) {
    backend.enter_compute_thread(threads);
    return backend;
  }

  Backend& backend_;
  std::unique_ptr<Stream> stream_;
  ParameterArena arena_;
  NetworkWeights weights_;
  PartContext part_;
  Buffer sums_;
};

// Images/s of all ranks together. `work` does one step and returns its images; the first few are not measured.
double measure(World& world, double seconds, const std::function<std::int64_t()>& work) {
  for (int i = 0; i < 3; ++i) work();
  world.barrier();
  const Stopwatch watch;
  std::int64_t images = 0;
  while (watch.seconds() < seconds) images += work();
  const double mine = static_cast<double>(images) / watch.seconds();
  double all = 0;
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(&mine, 1)))) {
    double theirs = 0;
    std::memcpy(&theirs, bytes.data(), sizeof theirs);
    all += theirs;
  }
  return all;
}

double input_alone(World& world, const Assembly& assembly, int readers, double seconds) {
  BatchLoader loader(*assembly.data.train, *assembly.backend, plan_of(assembly, world, readers));
  const auto stream = assembly.backend->make_stream();
  return measure(world, seconds, [&] { return samples_of(loader.next(*stream)); });
}

struct ComputeRates {
  double alone = 0;
  double together = 0;
};

// By turns, so that a machine that grows slower does so for both.
ComputeRates compute_rates(World& world, const Assembly& assembly, double seconds) {
  std::optional<BatchLoader> loader;
  std::optional<Compute> compute;
  run_agreed(world, [&] {
    loader.emplace(*assembly.data.train, *assembly.backend, plan_of(assembly, world, assembly.options.readers));
    compute.emplace(assembly, *loader);
  });
  std::vector<double> alone;
  std::vector<double> together;
  for (int round = 0; round < kRounds; ++round) {
    const StepBatches& same = loader->next(compute->stream());
    const auto play = [&](const StepBatches& step) {
      compute->play(step);
      return samples_of(step);
    };
    alone.push_back(measure(world, seconds, [&] { return play(same); }));
    together.push_back(measure(world, seconds, [&] { return play(loader->next(compute->stream())); }));
  }
  return {.alone = quartiles_of(alone).median, .together = quartiles_of(together).median};
}

RunConfig config_of(World& world, const Invocation& invocation) {
  RunConfig config = invocation.run;
  config.parts = world.size();
  const int fair_threads = fewest_cores_per_rank(world, count_cores(world));
  if (config.threads == 0) config.threads = fair_threads;
  if (config.exchange == "auto") config.exchange = "ring";
  return config;
}

struct Row {
  std::string what;
  int readers = 0;  // 0: none
  double images_per_second = 0;
};

void tell(const World& world, const Row& row, Json& results) {
  if (world.rank() != 0) return;
  fmt::print("{:>8} {:>8} {:>12.0f}\n", row.what, row.readers > 0 ? fmt::format("{}", row.readers) : "-",
             row.images_per_second);
  std::fflush(stdout);
  results.push_back({{"what", row.what}, {"readers", row.readers}, {"images_per_second", row.images_per_second}});
}

}  // namespace

ExitStatus bench_input(World& world, const Invocation& invocation) {
  const double seconds = invocation.input.seconds;
  const Log log(world.rank(), world.host(), invocation.run.quiet);
  const Assembly assembly = assemble(world, config_of(world, invocation), nullptr, log);
  const Cores& cores = assembly.cores;
  const int readers = assembly.options.readers;
  if (world.rank() == 0) {
    fmt::print("{}, {} on this host of {} and {} each\n", plural(cores.usable, "usable core"),
               plural(world.local_size(), "rank"), plural(assembly.options.threads, "compute thread"),
               plural(readers, "reader"));
    fmt::print("{:>8} {:>8} {:>12}\n", "what", "readers", "images/s");
  }
  Json results = Json::array();
  const int most = std::clamp(cores.usable / world.local_size(), readers, kMostReaders);
  for (int count = 1; count <= most; ++count) {
    tell(world, {"input", count, input_alone(world, assembly, count, seconds)}, results);
  }
  const auto [alone, together] = compute_rates(world, assembly, seconds);
  tell(world, {"compute", 0, alone}, results);
  tell(world, {"together", readers, together}, results);
  if (world.rank() == 0) fmt::print("together / compute alone = {:.3f}\n", together / alone);
  write_bench_json(world, invocation.json,
                   Json{{"bench", "input"},
                        {"model", assembly.config.model},
                        {"data", assembly.config.data},
                        {"augment", assembly.config.augment},
                        {"usable_cores", cores.usable},
                        {"local_ranks", world.local_size()},
                        {"compute_threads", assembly.options.threads},
                        {"readers_budgeted", readers},
                        {"together_over_compute", together / alone},
                        {"results", results}}
                           .dump(2) +
                       "\n");
  return ExitStatus::done;
}

}  // namespace tutti
