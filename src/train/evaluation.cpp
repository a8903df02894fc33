#include "tutti/train/evaluation.hpp"

#include "evaluator.hpp"
#include "state_arrays.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <span>

namespace tutti {
namespace {

// exp(logit - greatest logit) cannot overflow. A NaN among the logits makes the sum NaN.
SampleResult score_of(std::span<const float> logits, std::int32_t label) {
  const auto greatest = std::ranges::max_element(logits);
  SampleResult score{.label = label, .predicted = static_cast<std::int32_t>(greatest - logits.begin())};
  for (const float logit : logits) score.exponentials += std::exp(static_cast<double>(logit) - *greatest);
  return score;
}

}  // namespace

// The scores of one chunk, in host memory.
struct Evaluator::Scores {
  std::vector<SampleResult> samples{};
  std::vector<float> logits{};
  std::vector<std::int32_t> labels{};
  OwnedTensor plain{};  // the logits in the processor's memory; only for chunks of this rank

  void resize(std::int64_t count, std::size_t classes) {
    samples.resize(static_cast<std::size_t>(count));
    logits.resize(samples.size() * classes);
    labels.resize(samples.size());
  }
};

double ChunkScores::probability(std::size_t i, std::size_t of_class) const {
  const std::span<const float> all = logits_of(i);
  const double greatest = all[static_cast<std::size_t>(samples[i].predicted)];
  return std::exp(all[of_class] - greatest) / samples[i].exponentials;
}

Evaluator::Evaluator(const Dataset& data, const ImageRecipe& recipe, const RankContext& context, PartWorkers& workers,
                     int max_workers)
    : context_(context), workers_(workers), samples_(data.info().samples), chunks_((samples_ + kChunk - 1) / kChunk) {
  const std::int64_t max_chunks_of_rank = (chunks_ + context.communicator.size() - 1) / context.communicator.size();
  const auto used_workers = std::min({static_cast<std::int64_t>(workers.size()),
                                      static_cast<std::int64_t>(std::max(1, max_workers)), max_chunks_of_rank});
  for (std::int64_t i = 0; i < used_workers; ++i) {
    per_worker_.push_back({std::make_unique<ChunkReader>(data, context.backend, recipe, std::min(kChunk, samples_)),
                           OwnedTensor(context.backend, LossSums::kFields, ElementType::i64)});
  }
  each_worker([&](Worker& worker) {
    if (samples_ >= kChunk) worker.instance.plan(kChunk, LayerMode::evaluation);
    if (samples_ % kChunk != 0) worker.instance.plan(samples_ % kChunk, LayerMode::evaluation);
  });
}

LossSums Evaluator::run() {
  begin();
  each_worker([&](Worker& worker) {
    std::int64_t iteration = 0;
    for (auto chunk = chunk_of(worker, 0); chunk < chunks_; chunk = chunk_of(worker, ++iteration)) {
      evaluate(worker, chunk);
    }
    worker.stream.synchronize();
  });
  return total();
}

// Chunks are broadcast in rounds of one chunk per rank. In round r, a rank broadcasts the chunk of its worker r modulo
// the number of its workers, all of which have evaluated their chunks ahead. Ranks may have different numbers of
// workers.
LossSums Evaluator::run(const ScoreOutlet& outlet, std::size_t classes) {
  World& world = outlet.world;
  const std::int64_t ranks = context_.communicator.size();
  const std::size_t workers = per_worker_.size();
  std::vector<Scores> scores(workers + 1);  // of each worker, and of other ranks
  for (std::size_t i = 0; i < workers; ++i) {
    const std::int64_t most = std::min(kChunk, samples_) * static_cast<std::int64_t>(classes);
    scores[i].plain = OwnedTensor(context_.backend, most, ElementType::f32);
  }
  std::exception_ptr refusal;
  const auto rethrow_refusal = [&refusal] {
    if (refusal) std::rethrow_exception(refusal);
  };
  begin();
  for (std::int64_t round = 0; round * ranks < chunks_; ++round) {
    const auto turn = static_cast<std::size_t>(round) % workers;
    run_or_throw_on_all(world, [&] {
      rethrow_refusal();
      if (turn > 0) return;
      each_worker([&](Worker& worker) {
        const std::int64_t chunk = chunk_of(worker, round / static_cast<std::int64_t>(workers));
        if (chunk < chunks_) score(worker, evaluate(worker, chunk), classes, scores[worker.index]);
      });
    });
    const std::int64_t end = std::min(chunks_, (round + 1) * ranks);
    for (std::int64_t chunk = round * ranks; chunk < end; ++chunk) {
      const auto root = static_cast<int>(chunk % ranks);
      Scores& shared = scores[root == world.rank() ? turn : workers];
      shared.resize(samples_of(chunk), classes);
      world.broadcast(std::as_writable_bytes(std::span(shared.samples)), root);
      world.broadcast(std::as_writable_bytes(std::span(shared.logits)), root);
      if (world.rank() != 0 || refusal) continue;
      try {
        outlet.receive({chunk * kChunk, classes, shared.samples, shared.logits});
      } catch (...) {
        // Thrown at the next vote, since the other ranks are already in their broadcasts.
        refusal = std::current_exception();
      }
    }
  }
  run_or_throw_on_all(world, rethrow_refusal);
  return total();
}

// Waits for the worker's stream.
void Evaluator::score(Worker& worker, const Batch& batch, std::size_t classes, Scores& to) {
  const Shape shape{batch.samples, static_cast<std::int64_t>(classes)};
  const Tensor plain = to.plain.memory.view(shape, ElementType::f32);
  to.resize(batch.samples, classes);
  worker.instance.copy_logits(worker.stream, plain);
  context_.backend.copy(worker.stream, {to.logits.data(), shape, ElementType::f32, MemorySpace::host}, plain);
  context_.backend.copy(worker.stream, {to.labels.data(), batch.labels.shape, ElementType::i32, MemorySpace::host},
                        batch.labels);
  worker.stream.synchronize();
  const std::span<const float> logits(to.logits);
  for (std::size_t i = 0; i < to.labels.size(); ++i) {
    to.samples[i] = score_of(logits.subspan(i * classes, classes), to.labels[i]);
  }
}

void Evaluator::each_worker(const std::function<void(Worker&)>& work) {
  workers_.each([&](Worker& worker) {
    if (worker.index < per_worker_.size()) work(worker);
  });
}

void Evaluator::begin() {
  if (workers_.size() > 1) context_.stream.synchronize();  // the other workers' streams read the weights
  each_worker(
      [&](Worker& worker) { context_.backend.fill_zero(worker.stream, per_worker_[worker.index].sums.values); });
}

std::int64_t Evaluator::chunk_of(const Worker& worker, std::int64_t iteration) const {
  const std::int64_t round = iteration * std::ssize(per_worker_) + static_cast<std::int64_t>(worker.index);
  return round * context_.communicator.size() + context_.communicator.rank();
}

Batch Evaluator::evaluate(Worker& worker, std::int64_t chunk) {
  const PerWorker& own = per_worker_[worker.index];
  const Batch batch = own.reader->read(worker.stream, chunk * kChunk, samples_of(chunk));
  worker.instance.forward(worker.stream, batch.images, LayerMode::evaluation);
  worker.instance.loss(worker.stream, batch.labels, 0, own.sums.values);
  return batch;
}

LossSums Evaluator::total() {
  LossSums mine;
  for (const PerWorker& own : per_worker_) {
    mine = mine + read_sums(context_.backend, context_.stream, own.sums.values);
  }
  return context_.all_reduce(mine);
}

LossSums evaluate(const EvaluationRequest& request, const TrainState& state) {
  Backend& backend = request.backend;
  backend.enter_compute_thread(request.threads);
  const OwnedTensor block(backend, request.network.layout().block_elements(), ElementType::f32);
  const auto stream = backend.make_stream();
  stream->set_wait_callback([&request] { request.communicator.progress(); });
  fill_weights(backend, *stream, block.values, request.network.layout(), state);

  RankStatus own_status;
  const RankContext context(backend, request.communicator,
                            request.rank_status == nullptr ? own_status : *request.rank_status, *stream);
  NetworkWeights weights(request.network, backend, block.values);
  PartWorkers workers({.network = request.network,
                       .weights = weights,
                       .backend = backend,
                       .stream = *stream,
                       .workers = request.max_workers,
                       .threads = request.threads,
                       .rank_status = context.status});
  context.status.enter(Phase::evaluation);
  Evaluator evaluator(request.data, request.recipe, context, workers, request.max_workers);
  weights.refresh(*stream);
  if (request.scores == nullptr) return evaluator.run();
  return evaluator.run(*request.scores, static_cast<std::size_t>(request.network.classes()));
}

}  // namespace tutti
