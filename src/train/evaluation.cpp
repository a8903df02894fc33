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

// In the host's memory.
struct LocalScores {
  std::size_t classes = 0;
  std::vector<SampleResult> samples{};
  std::vector<float> logits{};

  void resize(std::int64_t count) {
    samples.resize(static_cast<std::size_t>(count));
    logits.resize(samples.size() * classes);
  }
  // Borrowed.
  ChunkScores from(std::int64_t first) const { return {first, classes, samples, logits}; }
};

}  // namespace

// The scores of a chunk that a worker has just evaluated.
class Evaluator::Scorer {
 public:
  // `backend` is borrowed.
  Scorer(Backend& backend, int classes, std::int64_t most_samples)
      : backend_(backend),
        plain_(backend.allocate(static_cast<std::size_t>(most_samples * classes) * bytes_of(ElementType::f32))),
        local_{.classes = static_cast<std::size_t>(classes)} {}

  // Scores the batch that the worker has just evaluated. Waits for its stream.
  void read(Worker& worker, const Batch& batch) {
    const Shape shape{batch.samples, static_cast<std::int64_t>(local_.classes)};
    const Tensor plain = plain_.view(shape, ElementType::f32);
    local_.resize(batch.samples);
    labels_.resize(local_.samples.size());
    worker.context.copy_logits(worker.stream, plain);
    backend_.copy(worker.stream, {local_.logits.data(), shape, ElementType::f32, MemorySpace::host}, plain);
    backend_.copy(worker.stream, {labels_.data(), batch.labels.shape, ElementType::i32, MemorySpace::host},
                  batch.labels);
    worker.stream.synchronize();
    const std::span<const float> logits(local_.logits);
    for (std::size_t i = 0; i < labels_.size(); ++i) {
      local_.samples[i] = score_of(logits.subspan(i * local_.classes, local_.classes), labels_[i]);
    }
  }
  LocalScores& local() noexcept { return local_; }

 private:
  Backend& backend_;
  Buffer plain_;  // the logits in the processor's memory
  std::vector<std::int32_t> labels_;
  LocalScores local_;
};

double ChunkScores::probability(std::size_t i, std::size_t of_class) const {
  const std::span<const float> all = logits_of(i);
  const double greatest = all[static_cast<std::size_t>(samples[i].predicted)];
  return std::exp(all[of_class] - greatest) / samples[i].exponentials;
}

Evaluator::Evaluator(const EvaluatedData& evaluated, const RankContext& context, PartWorkers& workers)
    : context_(context),
      workers_(workers),
      samples_(evaluated.data.info().samples),
      chunks_((samples_ + kChunk - 1) / kChunk) {
  const std::int64_t max_chunks_of_rank = (chunks_ + context.communicator.size() - 1) / context.communicator.size();
  const auto used_workers = std::min(static_cast<std::int64_t>(workers.size()), max_chunks_of_rank);
  for (std::int64_t i = 0; i < used_workers; ++i) {
    per_worker_.push_back(
        {std::make_unique<ChunkReader>(evaluated.data, context.backend, evaluated.recipe, std::min(kChunk, samples_)),
         context.backend.allocate(LossSums::kFields * sizeof(std::int64_t))});
  }
  each_worker([&](Worker& worker) {
    if (samples_ >= kChunk) worker.context.plan(kChunk, LayerMode::evaluation);
    if (samples_ % kChunk != 0) worker.context.plan(samples_ % kChunk, LayerMode::evaluation);
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
LossSums Evaluator::run(const ScoreOutlet& outlet, int classes) {
  World& world = outlet.world;
  const std::int64_t ranks = context_.communicator.size();
  const auto workers = std::ssize(per_worker_);
  std::vector<Scorer> scorers;
  for (std::int64_t i = 0; i < workers; ++i)
    scorers.emplace_back(context_.backend, classes, std::min(kChunk, samples_));
  LocalScores received{.classes = static_cast<std::size_t>(classes)};
  std::exception_ptr refusal;
  const auto rethrow_refusal = [&refusal] {
    if (refusal) std::rethrow_exception(refusal);
  };
  begin();
  for (std::int64_t round = 0; round * ranks < chunks_; ++round) {
    run_or_throw_on_all(world, [&] {
      rethrow_refusal();
      if (round % workers == 0) score_ahead(scorers, round / workers);
    });
    const std::int64_t end = std::min(chunks_, (round + 1) * ranks);
    for (std::int64_t chunk = round * ranks; chunk < end; ++chunk) {
      const auto root = static_cast<int>(chunk % ranks);
      const auto worker = static_cast<std::size_t>(round % workers);
      LocalScores& scores = root == world.rank() ? scorers[worker].local() : received;
      scores.resize(samples_of(chunk));
      world.broadcast(std::as_writable_bytes(std::span(scores.samples)), root);
      world.broadcast(std::as_writable_bytes(std::span(scores.logits)), root);
      if (world.rank() != 0 || refusal) continue;
      try {
        outlet.receive(scores.from(chunk * kChunk));
      } catch (...) {
        refusal =
            std::current_exception();  // thrown at the next vote, since the other ranks are already in their broadcasts
      }
    }
  }
  run_or_throw_on_all(world, rethrow_refusal);
  return total();
}

void Evaluator::score_ahead(std::vector<Scorer>& scorers, std::int64_t iteration) {
  each_worker([&](Worker& worker) {
    const std::int64_t chunk = chunk_of(worker, iteration);
    if (chunk < chunks_) scorers[worker.index].read(worker, evaluate(worker, chunk));
  });
}

void Evaluator::each_worker(const std::function<void(Worker&)>& work) {
  workers_.each([&](Worker& worker) {
    if (worker.index < per_worker_.size()) work(worker);
  });
}

void Evaluator::begin() {
  if (workers_.size() > 1) context_.stream.synchronize();  // the other workers' streams read the weights
  each_worker([&](Worker& worker) { context_.backend.fill_zero(worker.stream, sums_of(worker)); });
}

std::int64_t Evaluator::chunk_of(const Worker& worker, std::int64_t iteration) const {
  const std::int64_t round = iteration * std::ssize(per_worker_) + static_cast<std::int64_t>(worker.index);
  return round * context_.communicator.size() + context_.communicator.rank();
}

Batch Evaluator::evaluate(Worker& worker, std::int64_t chunk) {
  const Batch batch = per_worker_[worker.index].reader->read(worker.stream, chunk * kChunk, samples_of(chunk));
  worker.context.forward(worker.stream, batch.images, LayerMode::evaluation);
  worker.context.loss(worker.stream, batch.labels, 0, sums_of(worker));
  return batch;
}

LossSums Evaluator::total() {
  LossSums mine;
  for (const PerWorker& own : per_worker_) {
    mine =
        mine + read_sums(context_.backend, context_.stream, own.sums.view(Shape{LossSums::kFields}, ElementType::i64));
  }
  return context_.all_reduce(mine);
}

Tensor Evaluator::sums_of(const Worker& worker) const {
  return per_worker_[worker.index].sums.view(Shape{LossSums::kFields}, ElementType::i64);
}

LossSums evaluate(const EvaluationRequest& request, const TrainState& state) {
  Backend& backend = request.backend;
  backend.enter_compute_thread(request.threads);
  const ParameterLayout& layout = request.network.layout();
  const Buffer memory = backend.allocate(layout.block_bytes());
  const Tensor block = memory.view(Shape{layout.block_elements()}, ElementType::f32);
  const auto stream = backend.make_stream();
  stream->set_wait_callback([&request] { request.communicator.progress(); });
  fill_from_arrays(backend, *stream, block, layout.trained(), "", state.parameters);
  fill_from_arrays(backend, *stream, block, layout.statistics(), "", state.statistics);

  RankStatus own_status;
  const RankContext context(backend, request.communicator,
                            request.rank_status == nullptr ? own_status : *request.rank_status, *stream);
  NetworkWeights weights(request.network, backend, block);
  PartWorkers workers({.network = request.network,
                       .weights = weights,
                       .backend = backend,
                       .stream = *stream,
                       .workers = request.max_workers,
                       .threads = request.threads,
                       .rank_status = context.status});
  context.status.enter(Phase::evaluation);
  Evaluator evaluator({request.data, request.recipe}, context, workers);
  weights.refresh(*stream);
  if (request.scores == nullptr) return evaluator.run();
  return evaluator.run(*request.scores, request.network.classes());
}

}  // namespace tutti
