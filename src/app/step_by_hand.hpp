#pragma once
// A data-parallel step, phase by phase, for the tour: src/train without the optimizations (concurrent parts, overlapped
// all-reduces) and checks (of values and replicas). The result is bit-identical to the trainer's.

#include "tutti/data/batch_loader.hpp"
#include "tutti/nn/network_instance.hpp"
#include "tutti/storage/train_state.hpp"

#include "assemble.hpp"

#include <memory>

namespace tutti {

// Loads the slices of these parts from every batch.
inline LoaderPlan plan_by_hand(const PreparedRun& run, IndexRange parts) {
  const TrainerOptions& options = run.config.trainer;
  return {.batch_size = options.batch_size,
          .num_parts = options.num_parts,
          .parts = parts,
          .last_batch = options.last_batch,
          .order = {.shuffle = options.shuffle, .seed = options.seed, .labels = run.data.train->labels()},
          .steps_ahead = 0,
          .recipe = options.recipe,
          .class_weights = options.class_weights};
}

struct StepByHand {
  StepByHand(const PreparedRun& run, Communicator& summing, const LoaderPlan& plan)
      : options(run.config.trainer),
        backend(*run.processor.backend),
        communicator(summing),
        stream(backend.make_stream()),
        arena(run.network->layout(), backend, communicator.allocate(run.network->layout().block_bytes())),
        weights(*run.network, backend, arena.weights()),
        instance(*run.network, weights, backend, options.loss()),
        loader(*run.data.train, backend, plan),
        part_gradients(backend.allocate(arena.gradients().bytes())),
        velocity(backend.allocate(arena.gradients().bytes())),
        sums(backend.allocate(sizeof(LossSums::Fields))) {
    while (loader.sampler().steps(epoch) == 0) ++epoch;  // a batch may need more samples than an epoch has
    loader.seek(epoch, 0);
    for (const std::int64_t samples : loader.part_batch_sizes()) instance.plan(samples, LayerMode::training);
    // Every rank draws the same weights: each depends only on the seed, its tensor's name and its index.
    initialize(*run.network, options.initializer, options.seed, backend, arena.weights());
    weights.refresh(*stream);
    backend.fill_zero(*stream, velocity.view(arena.gradients().shape, ElementType::f32));
    backend.fill_zero(*stream, sums.view(Shape{LossSums::kFields}, ElementType::i64));
  }

  // Computes forward, loss and backward of each part of this rank, and adds up their gradients. Each loss is divided
  // by the samples of the whole batch, so that the sums over parts and ranks are means.
  TrainSums compute(const StepBatches& step) {
    const Tensor fields = sums.view(Shape{LossSums::kFields}, ElementType::i64);
    const auto all_samples = static_cast<double>(step.global_samples);
    bool is_first = true;
    for (const Batch& batch : step.batches) {
      if (batch.samples == 0) continue;
      const Tensor block = arena.gradients();
      const Tensor gradients = is_first ? block : part_gradients.view(block.shape, block.type);
      instance.forward(*stream, batch.images, LayerMode::training,
                       {.seed = options.seed, .first_position = static_cast<std::uint32_t>(batch.first_position)});
      instance.loss(*stream, batch.labels, step.gradient_scale(), fields);
      instance.backward(*stream, gradients, static_cast<float>(static_cast<double>(batch.samples) / all_samples),
                        [](std::int64_t) {});
      if (!is_first) backend.add(*stream, block, gradients);
      is_first = false;
    }
    if (is_first) backend.fill_zero(*stream, arena.gradients());
    LossSums::Fields on_host{};
    backend.copy(*stream, {on_host.data(), fields.shape, ElementType::i64, MemorySpace::host}, fields);
    stream->synchronize();
    return {LossSums::from(on_host), step.own_weight};
  }

  // Starts one all-reduce per bucket of whole tensors. Returns the number of buckets.
  int exchange() {
    int buckets = 0;
    std::int64_t begin = 0;
    for (const std::int64_t end : arena.layout().slice_ends()) {
      const bool is_last = end == arena.layout().block_elements();
      if (!is_last && static_cast<std::size_t>(end - begin) * sizeof(float) < options.bucket_bytes) continue;
      communicator.all_reduce(elements_of(arena.gradients(), {begin, end}), *stream);
      begin = end;
      ++buckets;
    }
    communicator.finish(*stream);
    return buckets;
  }

  // Every rank makes the same update, so nothing is sent. Running statistics of batch norm are blended in.
  void update(double learning_rate) {
    const Tensor velocities = velocity.view(arena.trained_weights().shape, ElementType::f32);
    for (const ParameterSlice& slice : arena.layout().trained()) {
      if (slice.frozen) continue;
      backend.sgd_step(*stream, {.weights = slice_of(arena.weights(), slice),
                                 .gradients = slice_of(arena.gradients(), slice),
                                 .velocity = slice_of(velocities, slice),
                                 .learning_rate = static_cast<float>(learning_rate),
                                 .momentum = static_cast<float>(options.optimizer.momentum),
                                 .weight_decay = static_cast<float>(options.optimizer.weight_decay)});
    }
    update_statistics(backend, *stream, arena.layout(), {arena.weights(), arena.gradients()});
    weights.refresh(*stream);
    stream->synchronize();
  }

  std::uint64_t digest(const Tensor& block) { return digest_of(backend, *stream, block, arena.layout().trained()); }

  const TrainerOptions& options;
  Backend& backend;
  Communicator& communicator;
  std::unique_ptr<Stream> stream;
  ParameterArena arena;      // weights and gradients, each in one block
  NetworkWeights weights;    // in the format of the layers
  NetworkInstance instance;  // activations of one part
  BatchLoader loader;
  Buffer part_gradients;
  Buffer velocity;
  Buffer sums;
  std::int64_t epoch = 0;
};

}  // namespace tutti
