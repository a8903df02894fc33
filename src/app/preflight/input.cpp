#include "input.hpp"

#include "tutti/base/timing.hpp"

#include "../input_rates.hpp"
#include "../step_by_hand.hpp"

#include <algorithm>
#include <limits>

namespace tutti {
namespace {

// Of a part. A GPU is not busy with fewer, and a CPU takes seconds for more.
constexpr std::int64_t kImagesOnGpu = 64;
constexpr std::int64_t kImagesOnCpu = 4;
constexpr int kPreparedSteps = 4;
constexpr int kTimedSteps = 2;

// More images/s than this rank can train on, since no core or GPU computes so many operations.
double most_images(const PreparedRun& run, int workers) {
  constexpr double kOfCore = 4e12;
  constexpr double kOfGpu = 4e15;
  constexpr double kOperations = 6;  // forward and backward, for each multiply-add of the forward pass
  const double operations = run.processor.is_gpu() ? kOfGpu : kOfCore * run.config.trainer.threads * workers;
  return operations / kOperations / static_cast<double>(std::max<std::int64_t>(1, run.network->multiply_adds()));
}

PreparedImages prepare_images(const PreparedRun& run, const LoaderPlan& plan) {
  BatchLoader loader(*run.data.train, *run.processor.backend, plan);
  const auto stream = run.processor.backend->make_stream();
  for (int i = 0; i < kPreparedSteps; ++i) loader.next(*stream);
  stream->synchronize();
  return loader.prepared();
}

// Images/s of one part.
double training_rate(const PreparedRun& run, Communicator& communicator, const LoaderPlan& plan) {
  StepByHand step(run, communicator, plan);
  const StepBatches& batches = step.loader.next(*step.stream);
  step.compute(batches);  // prepares kernels and memory
  double seconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimedSteps; ++i) {
    const Stopwatch watch;
    step.compute(batches);
    seconds = std::min(seconds, watch.seconds());
  }
  return static_cast<double>(batches.batches.front().samples) / seconds;
}

}  // namespace

Findings check_input(World& world, const PreparedRun& run, Communicator& communicator) {
  Findings findings;
  if (!run.data.train->is_encoded()) return findings;
  const TrainerOptions& options = run.config.trainer;
  const bool on_gpus = run.processor.all_on_gpus;
  const IndexRange parts = PartMap(options.num_parts, world.size()).parts_of(world.rank());
  const int workers = options.workers(static_cast<int>(parts.size()));
  LoaderPlan plan = plan_by_hand(run, {parts.begin, parts.begin + 1});
  const std::int64_t of_part = std::max<std::int64_t>(1, options.batch_size / options.num_parts);
  plan.batch_size = std::min(of_part, on_gpus ? kImagesOnGpu : kImagesOnCpu) * options.num_parts;
  plan.last_batch = LastBatch::rollover;

  run.processor.backend->enter_compute_thread(options.threads);
  PreparedImages prepared;
  run_or_throw_on_all(world, [&] { prepared = prepare_images(run, plan); });
  if (input_rates(world, prepared, most_images(run, workers)).suffices(options.readers)) return findings;
  double of_part_trained = 0;
  run_or_throw_on_all(world, [&] { of_part_trained = training_rate(run, communicator, plan); });
  const InputRates rates = input_rates(world, prepared, of_part_trained * workers);
  if (rates.suffices(options.readers)) return findings;
  findings.warn(
      "{}, and {}: training will wait for images; give each rank more cores, or store smaller images with "
      "trainer data convert --encoded --short-side N",
      rates_text(rates, on_gpus), options.readers == 1 ? "1 is there" : fmt::format("{} are there", options.readers));
  return findings;
}

}  // namespace tutti
