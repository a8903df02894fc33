#include "tutti/train/evaluation.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/portable_math.hpp"

#include "evaluator.hpp"
#include "state_arrays.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <span>

namespace tutti {
namespace {

// exp(logit - greatest logit) cannot overflow. A NaN among the logits makes the sum NaN.
SampleResult score_of(std::span<const float> logits, std::int32_t label) {
  const auto max_logit = std::ranges::max_element(logits);
  SampleResult score{.label = label, .predicted = static_cast<std::int32_t>(max_logit - logits.begin())};
  for (const float logit : logits) score.exponentials += portable_exp(static_cast<double>(logit) - *max_logit);
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
  const double max_logit = all[static_cast<std::size_t>(samples[i].predicted)];
  return portable_exp(all[of_class] - max_logit) / samples[i].exponentials;
}

// Each shifted view has its mirror image.
std::vector<Evaluator::WeightedView> Evaluator::views_of(Views views) {
  if (views == Views::none) return {{{}, 1}};
  const double weight = views == Views::flip ? 0.5 : 0.25;
  std::vector<WeightedView> all{{{0, false}, weight}, {{0, true}, weight}};
  if (views == Views::flip) return all;
  for (const std::int64_t shift : {-1, 1}) {
    for (const bool mirrored : {false, true}) all.push_back({{shift, mirrored}, weight / 2});
  }
  return all;
}

Evaluator::Evaluator(const EvaluatedData& evaluated, const RankContext& context, PartWorkers& workers, int max_workers)
    : context_(context),
      workers_(workers),
      samples_(evaluated.data.info().samples),
      chunk_(chunk_samples(samples_)),
      chunks_((samples_ + chunk_ - 1) / chunk_),
      classes_(static_cast<std::size_t>(evaluated.classes)),
      views_(views_of(evaluated.views)) {
  const Shape image = evaluated.recipe.image.ndim() == 0 ? evaluated.data.info().image : evaluated.recipe.image;
  if (evaluated.views == Views::shifts && std::min(image[1], image[2]) < 2) {
    throw Error(ErrorSource::usage, fmt::format("--views shifts needs images of 2x2 or more, not of {}", image.text()));
  }
  const std::int64_t max_chunks_of_rank = (chunks_ + context.communicator.size() - 1) / context.communicator.size();
  const auto used_workers = std::min({static_cast<std::int64_t>(workers.size()),
                                      static_cast<std::int64_t>(std::max(1, max_workers)), max_chunks_of_rank});
  for (std::int64_t i = 0; i < used_workers; ++i) {
    const std::int64_t most = chunk_;
    const std::int64_t logits = views_.size() == 1 ? 0 : most * evaluated.classes;
    PerWorker& own = per_worker_.emplace_back(
        std::make_unique<ChunkReader>(evaluated.data, context.backend, evaluated.recipe, most),
        OwnedTensor(context.backend, LossSums::kFields, ElementType::i64),
        OwnedTensor(context.backend, logits, ElementType::f32), OwnedTensor(context.backend, logits, ElementType::f32));
    if (logits == 0) continue;
    for (const std::int64_t samples : {most, samples_ % chunk_}) {
      if (samples == 0) continue;
      own.losses[samples] =
          context.backend.make_softmax_loss(context.backend.plain_activation(Shape{samples, evaluated.classes}));
    }
  }
  each_worker([&](Worker& worker) {
    worker.instance.plan(chunk_, LayerMode::evaluation);
    if (samples_ % chunk_ != 0) worker.instance.plan(samples_ % chunk_, LayerMode::evaluation);
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
LossSums Evaluator::run(const ScoreOutlet& outlet) {
  World& world = outlet.world;
  const std::int64_t ranks = context_.communicator.size();
  const std::size_t workers = per_worker_.size();
  std::vector<Scores> scores(workers + 1);  // of each worker, and of other ranks
  for (std::size_t i = 0; i < workers; ++i) {
    const std::int64_t most = chunk_ * static_cast<std::int64_t>(classes_);
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
        if (chunk < chunks_) score(worker, evaluate(worker, chunk), scores[worker.index]);
      });
    });
    const std::int64_t end = std::min(chunks_, (round + 1) * ranks);
    for (std::int64_t chunk = round * ranks; chunk < end; ++chunk) {
      const auto root = static_cast<int>(chunk % ranks);
      Scores& shared = scores[root == world.rank() ? turn : workers];
      shared.resize(samples_of(chunk), classes_);
      world.broadcast(std::as_writable_bytes(std::span(shared.samples)), root);
      world.broadcast(std::as_writable_bytes(std::span(shared.logits)), root);
      if (world.rank() != 0 || refusal) continue;
      try {
        outlet.receive({chunk * chunk_, classes_, shared.samples, shared.logits});
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
void Evaluator::score(Worker& worker, const Batch& batch, Scores& to) {
  const Shape shape{batch.samples, static_cast<std::int64_t>(classes_)};
  const Tensor plain = to.plain.memory.view(shape, ElementType::f32);
  to.resize(batch.samples, classes_);
  copy_logits(worker, plain);
  context_.backend.copy(worker.stream, {to.logits.data(), shape, ElementType::f32}, plain);
  context_.backend.copy(worker.stream, {to.labels.data(), batch.labels.shape, ElementType::i32}, batch.labels);
  worker.stream.synchronize();
  const std::span<const float> logits(to.logits);
  for (std::size_t i = 0; i < to.labels.size(); ++i) {
    to.samples[i] = score_of(logits.subspan(i * classes_, classes_), to.labels[i]);
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
  const std::int64_t samples = samples_of(chunk);
  const Shape shape{samples, static_cast<std::int64_t>(classes_)};
  Batch batch;
  double weight = 0;  // of the views so far
  for (const WeightedView& each : views_) {
    batch = own.reader->read(worker.stream, chunk * chunk_, samples, each.view);
    worker.instance.forward(worker.stream, batch.images, LayerMode::evaluation);
    weight += each.weight;
    if (views_.size() == 1) {
      worker.instance.loss(worker.stream, batch.labels, 0, own.sums.values);
      return batch;
    }
    const Tensor mean = own.mean_logits.memory.view(shape, ElementType::f32);
    const Tensor logits = own.view_logits.memory.view(shape, ElementType::f32);
    worker.instance.copy_logits(worker.stream, weight == each.weight ? mean : logits);
    if (weight == each.weight) continue;
    context_.backend.blend(worker.stream, mean, logits, static_cast<float>(each.weight / weight));
  }
  own.losses.at(samples)->run(worker.stream,
                              {.logits = own.mean_logits.values.data, .labels = batch.labels, .sums = own.sums.values});
  return batch;
}

void Evaluator::copy_logits(Worker& worker, const Tensor& to) const {
  if (views_.size() == 1) return worker.instance.copy_logits(worker.stream, to);
  const Buffer& mean = per_worker_[worker.index].mean_logits.memory;
  context_.backend.copy(worker.stream, to, mean.view(to.shape, ElementType::f32));
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
  const EvaluatedData evaluated{request.data, request.recipe, request.network.classes(), request.views};
  Evaluator evaluator(evaluated, context, workers, request.max_workers);
  weights.refresh(*stream);
  if (request.scores == nullptr) return evaluator.run();
  return evaluator.run(*request.scores);
}

}  // namespace tutti
