#include "part_workers.hpp"

#include "tutti/base/timing.hpp"
#include "tutti/train/replica.hpp"

#include "evaluator.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>

namespace tutti {

namespace {

// The pass over one of the parts, which leaves its gradients in that block.
TrainPass pass_over(const Batch& batch, const PartsOfStep& step, const Tensor& sums, const Tensor& gradients) {
  const std::int64_t all = step.batches.global_samples;
  return {.images = batch.images,
          .labels = batch.labels,
          .gradient_scale = step.batches.gradient_scale(),
          .sums = sums,
          .gradients = gradients,
          .sample_fraction = static_cast<float>(static_cast<double>(batch.samples) / static_cast<double>(all)),
          .place = {.seed = step.seed,
                    .step = static_cast<std::uint32_t>(step.step),
                    .first_position = static_cast<std::uint32_t>(batch.first_position)},
          .first_layer = step.first_layer};
}

}  // namespace

PartWorkers::PartWorkers(const WorkersRequest& request)
    : backend_(request.backend),
      status_(request.rank_status),
      restores_sums_(request.restores_sums),
      norm_sums_(request.norm_sums) {
  for (std::size_t index = 0; index < static_cast<std::size_t>(std::max(1, request.workers)); ++index) {
    if (index > 0) streams_.push_back(backend_.make_stream());
    workers_.push_back(std::unique_ptr<Worker>(
        new Worker{.index = index,
                   .stream = index == 0 ? request.stream : *streams_.back(),
                   .instance = NetworkInstance(request.network, request.weights, backend_, request.loss),
                   .sums = OwnedTensor(backend_, LossSums::kFields, ElementType::i64),
                   .sums_before = OwnedTensor(backend_, restores_sums_ ? LossSums::kFields : 0, ElementType::i64)}));
    workers_.back()->instance.after_layers([this] { status_.note_progress(); });
    workers_.back()->instance.normalize_over(norm_sums_);
  }
  for (std::size_t i = 1; i < workers_.size(); ++i) {
    threads_.emplace_back([this, i](const std::stop_token& stop) { run_thread(*workers_[i], stop); });
  }
  each([&](Worker&) { backend_.enter_compute_thread(request.threads); });
}

void PartWorkers::plan(std::int64_t samples, LayerMode mode) {
  each([&](Worker& worker) { worker.instance.plan(samples, mode); });
}

void PartWorkers::collect_gradients(GradientAccumulator& total, std::int64_t parts,
                                    std::vector<std::int64_t> bucket_ends) {
  total_ = &total;
  bucket_ends_ = std::move(bucket_ends);
  for (const auto& worker : workers_) {
    std::size_t part = worker->index;  // its first part that needs a block of its own
    while (part < static_cast<std::size_t>(parts) && uses_block_of_total(*worker, part)) part += size();
    if (part >= static_cast<std::size_t>(parts)) continue;
    worker->gradients = OwnedTensor(backend_, total.gradients().elements(), ElementType::f32);
  }
}

void PartWorkers::each(const std::function<void(Worker&)>& work) {
  {
    const std::scoped_lock lock(mutex_);
    work_ = &work;
    failure_ = nullptr;
    busy_ = workers_.size() - 1;
    ++calls_;
  }
  called_.notify_all();
  run_work(*workers_.front());
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return busy_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void PartWorkers::run_thread(Worker& worker, const std::stop_token& stop) {
  for (std::uint64_t seen = 0;; ++seen) {
    {
      std::unique_lock lock(mutex_);
      if (!called_.wait(lock, stop, [&] { return calls_ != seen; })) return;
    }
    run_work(worker);
    const std::scoped_lock lock(mutex_);
    if (--busy_ == 0) changed_.notify_all();
  }
}

void PartWorkers::run_work(Worker& worker) noexcept {
  try {
    (*work_)(worker);
  } catch (...) {
    {
      const std::scoped_lock lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
    changed_.notify_all();
    if (norm_sums_ != nullptr) norm_sums_->abandon();
  }
}

void PartWorkers::add(Worker& worker, const PartGradients& part, std::int64_t ready_elements) {
  IndexRange fresh{0, ready_elements};
  {
    const std::scoped_lock lock(mutex_);
    fresh.begin = added_[part.index];
    if (part.index > 0) fresh.end = std::min(fresh.end, added_[part.index - 1]);
  }
  if (fresh.begin >= fresh.end) return;
  total_->add(worker.stream, part, fresh);
  if (observer_ != nullptr && part.index == 0) observer_->on_added(worker.stream, fresh);
  if (size() > 1) worker.stream.synchronize();  // the next part may be on another stream
  {
    const std::scoped_lock lock(mutex_);
    added_[part.index] = fresh.end;
  }
  changed_.notify_all();
}

void PartWorkers::finish(Worker& worker, const PartGradients& part) {
  const std::int64_t whole = total_->gradients().elements();
  add(worker, part, whole);
  for (std::int64_t known = 0; part.index > 0 && known < whole; add(worker, part, whole)) {
    known = wait_for_more_than(known, part.index - 1);
  }
}

std::int64_t PartWorkers::wait_for_more_than(std::int64_t known, std::size_t part) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return added_[part] > known || failure_ != nullptr; });
  if (failure_) std::rethrow_exception(failure_);
  return added_[part];
}

void PartWorkers::compute(const PartsOfStep& step, const OnGradientsReady& on_ready) {
  parts_.clear();
  for (const Batch& batch : step.batches.batches) {
    if (batch.samples > 0) parts_.push_back(&batch);
  }
  observer_ = step.observer;
  if (observer_ != nullptr) {
    std::ranges::stable_partition(parts_, [&](const Batch* batch) { return batch->part == step.observed_part; });
  }
  Stream& stream = workers_.front()->stream;
  const std::int64_t elements = total_->gradients().elements();
  total_->begin(stream);
  if (restores_sums_) {
    for (const auto& worker : workers_) backend_.copy(worker->stream, worker->sums_before.values, worker->sums.values);
  }
  if (norm_sums_ != nullptr) norm_sums_->begin(parts_.size());
  if (parts_.empty()) {
    total_->clear(stream);
    return on_ready(elements);
  }
  if (size() > 1) stream.synchronize();  // the other workers' streams read the weights
  added_.assign(parts_.size(), 0);
  const Stopwatch watch;
  double exchange_seconds = 0;
  const OnGradientsReady timed_callback = [&](std::int64_t known) {
    const Stopwatch pause;
    on_ready(known);
    exchange_seconds += pause.seconds();
  };
  each([&](Worker& worker) {
    compute_parts(worker, step, timed_callback);
    if (worker.index > 0) return;
    std::int64_t known = -1;
    while (known < elements) timed_callback(known = wait_for_more_than(known, parts_.size() - 1));
  });
  seconds_ = watch.seconds() - exchange_seconds - (norm_sums_ == nullptr ? 0 : norm_sums_->seconds_waited());
}

// Part 0 is written where the sum is made. Any other part starts its backward pass only after the worker's previous
// part has been added.
void PartWorkers::compute_parts(Worker& worker, const PartsOfStep& step, const OnGradientsReady& on_ready) {
  std::optional<PartGradients> unfinished;
  for (std::size_t i = worker.index; i < parts_.size(); i += size()) {
    const Batch& batch = *parts_[i];
    const PartGradients part{i, uses_block_of_total(worker, i) ? total_->gradients() : worker.gradients.values};
    if (worker.index == 0) status_.enter(Phase::forward);
    TrainPass pass = pass_over(batch, step, worker.sums.values, part.gradients);
    pass.may_leave_unfinished = step.may_leave_unfinished && parts_.size() == 1;
    worker.instance.train(worker.stream, pass,
                          {.bucket_ends = i + 1 == parts_.size() ? std::span<const std::int64_t>(bucket_ends_)
                                                                 : std::span<const std::int64_t>{},
                           .before_backward =
                               [&] {
                                 if (worker.index == 0) status_.enter(Phase::backward);
                                 if (unfinished) finish(worker, *unfinished);
                               },
                           .after_layer =
                               [&](std::int64_t final) {
                                 add(worker, part, final);
                                 if (worker.index == 0) on_ready(wait_for_more_than(-1, parts_.size() - 1));
                               }});
    if (observer_ != nullptr && i == 0) {
      observer_->on_losses(worker.stream, worker.sums_before.values, worker.sums.values);
    }
    unfinished = part;
  }
  if (step.timed) worker.stream.synchronize();
  if (unfinished) finish(worker, *unfinished);
}

std::vector<std::int64_t> PartWorkers::trace(const PartsOfStep& part, const Tensor& sums) {
  std::vector<std::int64_t> digests;
  each([&](Worker& worker) {
    if (worker.index > 0) return;
    const TrainPass pass = pass_over(part.batches.batches.front(), part, sums, total_->gradients());
    for (const std::uint64_t digest : worker.instance.trace(worker.stream, pass)) {
      digests.push_back(static_cast<std::int64_t>(digest));
    }
  });
  return digests;
}

void PartWorkers::restore_sums() {
  for (const auto& worker : workers_) backend_.copy(worker->stream, worker->sums.values, worker->sums_before.values);
}

std::vector<Tensor> PartWorkers::bad_losses() const {
  std::vector<Tensor> counts;
  for (const auto& worker : workers_) {
    counts.push_back(elements_of(worker->sums.values, {LossSums::kNotFinite, LossSums::kNotFinite + 1}));
  }
  return counts;
}

bool PartWorkers::uses_block_of_total(const Worker& worker, std::size_t part) const {
  return part == 0 || (worker.index == 0 && !total_->sums_in_place());
}

LossSums PartWorkers::sums() {
  LossSums all;
  for (const auto& worker : workers_) all = all + read_sums(backend_, worker->stream, worker->sums.values);
  return all;
}

void PartWorkers::set_sums(const LossSums& sums) {
  for (const auto& worker : workers_) {
    LossSums::Fields fields = (worker->index == 0 ? sums : LossSums{}).fields();
    const Tensor host{fields.data(), worker->sums.values.shape, ElementType::i64, MemorySpace::host};
    backend_.copy(worker->stream, worker->sums.values, host);
    worker->stream.synchronize();
  }
}

std::size_t PartWorkers::memory_bytes() const {
  std::size_t bytes = 0;
  for (const auto& worker : workers_) bytes += worker->instance.activation_bytes() + worker->gradients.memory.bytes();
  return bytes;
}

std::int64_t PartWorkers::estimate_activations(const ReplicaShape& shape, int max_parts, std::int64_t samples) {
  const auto bytes = [&](std::int64_t of_samples, LayerMode mode) {
    return static_cast<std::int64_t>(
        tutti::estimate_activations(shape.network, {of_samples, mode, shape.bytes_per_value}));
  };
  const std::int64_t workers = shape.options.workers(max_parts);
  const std::int64_t testing = std::min<std::int64_t>(workers, std::max(1, shape.options.max_workers));
  const std::int64_t training = bytes(samples, LayerMode::training);
  const std::int64_t tested = bytes(Evaluator::chunk_samples(shape.test_samples), LayerMode::evaluation);
  return workers * training + testing * std::max<std::int64_t>(0, tested - training);
}

// Every worker but the first has its own gradients; the first one too if parts are added up in floats.
std::int64_t PartWorkers::estimate_gradients(const ReplicaShape& shape, int max_parts) {
  const int workers = shape.options.workers(max_parts);
  const bool first_has_none = shape.options.exchange.kind == Exchange::exact || max_parts <= workers;
  return (workers - (first_has_none ? 1 : 0)) * static_cast<std::int64_t>(shape.network.layout().block_bytes());
}

}  // namespace tutti
