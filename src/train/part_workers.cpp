#include "part_workers.hpp"

#include "tutti/base/timing.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>

namespace tutti {
namespace {

constexpr std::size_t kSumsBytes = LossSums::kFields * sizeof(std::int64_t);

Tensor loss_fields(const Buffer& sums) { return sums.view(Shape{LossSums::kFields}, ElementType::i64); }
Tensor sums_of(const Worker& worker) { return loss_fields(worker.sums); }
Tensor sums_before(const Worker& worker) { return loss_fields(worker.sums_before); }

}  // namespace

void OrderedAccumulation::begin(std::size_t parts) {
  const std::scoped_lock lock(mutex_);
  added_.assign(parts, 0);
  failure_ = nullptr;
}

void OrderedAccumulation::add(Stream& stream, const PartGradients& part, std::int64_t final_elements) {
  std::int64_t begin = 0;
  std::int64_t end = final_elements;
  {
    const std::scoped_lock lock(mutex_);
    begin = added_[part.index];
    if (part.index > 0) end = std::min(end, added_[part.index - 1]);
  }
  if (begin >= end) return;
  total_.add(stream, part, {begin, end});
  if (streams_ == Streams::many) stream.synchronize();  // the next part may be on another stream
  {
    const std::scoped_lock lock(mutex_);
    added_[part.index] = end;
  }
  changed_.notify_all();
}

void OrderedAccumulation::finish(Stream& stream, const PartGradients& part) {
  const std::int64_t whole = total_.gradients().elements();
  while (true) {
    add(stream, part, whole);
    std::unique_lock lock(mutex_);
    const std::int64_t mine = added_[part.index];
    if (mine == whole) return;
    changed_.wait(lock, [&] { return added_[part.index - 1] > mine || failure_ != nullptr; });
    if (failure_) std::rethrow_exception(failure_);
  }
}

std::int64_t OrderedAccumulation::summed_elements() {
  const std::scoped_lock lock(mutex_);
  return added_.back();
}

std::int64_t OrderedAccumulation::wait_for_more_than(std::int64_t known) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return added_.back() > known || failure_ != nullptr; });
  if (failure_) std::rethrow_exception(failure_);
  return added_.back();
}

void OrderedAccumulation::fail(std::exception_ptr failure) {
  {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  changed_.notify_all();
}

PartWorkers::PartWorkers(const WorkersRequest& request) : backend_(request.backend), status_(request.rank_status) {
  for (std::size_t index = 0; index < static_cast<std::size_t>(std::max(1, request.workers)); ++index) {
    if (index > 0) streams_.push_back(backend_.make_stream());
    workers_.push_back(std::unique_ptr<Worker>(
        new Worker{.index = index,
                   .stream = index == 0 ? request.stream : *streams_.back(),
                   .context = PartContext(request.network, request.weights, backend_, request.label_smoothing),
                   .sums = backend_.allocate(kSumsBytes),
                   .sums_before = backend_.allocate(kSumsBytes)}));
    workers_.back()->context.after_layers([this] { status_.note_progress(); });
  }
  for (std::size_t i = 1; i < workers_.size(); ++i) {
    threads_.emplace_back([this, i](const std::stop_token& stop) { run_thread(*workers_[i], stop); });
  }
  each([&](Worker&) { backend_.enter_compute_thread(request.threads); });
}

PartWorkers::~PartWorkers() = default;

void PartWorkers::plan(std::int64_t samples, LayerMode mode) {
  each([&](Worker& worker) { worker.context.plan(samples, mode); });
}

void PartWorkers::collect_gradients(GradientAccumulator& total, std::int64_t parts,
                                    std::vector<std::int64_t> thresholds) {
  total_ = &total;
  thresholds_ = std::move(thresholds);
  sum_ = std::make_unique<OrderedAccumulation>(
      total, size() > 1 ? OrderedAccumulation::Streams::many : OrderedAccumulation::Streams::one);
  for (const auto& worker : workers_) {
    std::size_t first_separate = worker->index;  // its first part outside the total
    while (first_separate < static_cast<std::size_t>(parts) && is_in_total(*worker, first_separate))
      first_separate += size();
    if (first_separate < static_cast<std::size_t>(parts)) {
      worker->gradients = backend_.allocate(total.gradients().bytes());
    }
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
  done_.wait(lock, [this] { return busy_ == 0; });
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
    if (--busy_ == 0) done_.notify_one();
  }
}

void PartWorkers::run_work(Worker& worker) noexcept {
  try {
    (*work_)(worker);
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void PartWorkers::compute(const PartsOfStep& step, const OnGradientsFinal& on_final) {
  parts_.clear();
  for (const Batch& batch : step.batches.batches) {
    if (batch.samples > 0) parts_.push_back(&batch);
  }
  Stream& stream = workers_.front()->stream;
  const std::int64_t elements = total_->gradients().elements();
  total_->begin(stream);
  for (const auto& worker : workers_) backend_.copy(worker->stream, sums_before(*worker), sums_of(*worker));
  if (parts_.empty()) {
    total_->clear(stream);
    return on_final(elements);
  }
  if (size() > 1) stream.synchronize();  // the other workers' streams read the weights
  sum_->begin(parts_.size());
  const Stopwatch watch;
  double exchange_seconds = 0;
  const OnGradientsFinal timed_callback = [&](std::int64_t known) {
    const Stopwatch pause;
    on_final(known);
    exchange_seconds += pause.seconds();
  };
  each([&](Worker& worker) {
    try {
      compute_parts(worker, step, timed_callback);
      if (worker.index > 0) return;
      std::int64_t known = sum_->summed_elements();
      for (timed_callback(known); known < elements; timed_callback(known)) known = sum_->wait_for_more_than(known);
    } catch (...) {
      sum_->fail(std::current_exception());
      throw;
    }
  });
  seconds_ = watch.seconds() - exchange_seconds;
}

// Part 0 is written where the sum is made. Any other part starts its backward pass only after the worker's previous
// part has been added.
void PartWorkers::compute_parts(Worker& worker, const PartsOfStep& step, const OnGradientsFinal& on_final) {
  std::optional<PartGradients> unfinished;
  for (std::size_t i = worker.index; i < parts_.size(); i += size()) {
    const Batch& batch = *parts_[i];
    const auto global_samples = static_cast<double>(step.batches.global_samples);
    const PartGradients part{i, gradients_for(worker, i)};
    if (worker.index == 0) status_.enter(Phase::forward);
    worker.context.train(
        worker.stream,
        {.images = batch.images,
         .labels = batch.labels,
         .gradient_scale = 1.0f / static_cast<float>(step.batches.global_samples),
         .sums = sums_of(worker),
         .gradients = part.gradients,
         .sample_fraction = static_cast<float>(static_cast<double>(batch.samples) / global_samples),
         .place = {.seed = step.seed,
                   .step = static_cast<std::uint32_t>(step.step),
                   .first_position = static_cast<std::uint32_t>(batch.first_position)}},
        {.stops = i + 1 == parts_.size() ? std::span<const std::int64_t>(thresholds_) : std::span<const std::int64_t>{},
         .before_backward =
             [&] {
               if (worker.index == 0) status_.enter(Phase::backward);
               if (unfinished) sum_->finish(worker.stream, *unfinished);
             },
         .after_layer =
             [&](std::int64_t final) {
               sum_->add(worker.stream, part, final);
               if (worker.index == 0) on_final(sum_->summed_elements());
             }});
    unfinished = part;
  }
  if (step.measured) worker.stream.synchronize();
  if (unfinished) sum_->finish(worker.stream, *unfinished);
}

void PartWorkers::restore_sums() {
  for (const auto& worker : workers_) backend_.copy(worker->stream, sums_of(*worker), sums_before(*worker));
}

std::vector<Tensor> PartWorkers::bad_losses() const {
  std::vector<Tensor> counts;
  for (const auto& worker : workers_) {
    counts.push_back(elements_of(sums_of(*worker), {LossSums::kNotFinite, LossSums::kNotFinite + 1}));
  }
  return counts;
}

bool PartWorkers::is_in_total(const Worker& worker, std::size_t part) const {
  return part == 0 || (worker.index == 0 && !total_->first_part_writes_total());
}

Tensor PartWorkers::gradients_for(const Worker& worker, std::size_t part) const {
  const Tensor block = total_->gradients();
  return is_in_total(worker, part) ? block : worker.gradients.view(block.shape, ElementType::f32);
}

LossSums PartWorkers::sums() {
  LossSums all;
  for (const auto& worker : workers_) all = all + read_sums(backend_, worker->stream, sums_of(*worker));
  return all;
}

void PartWorkers::set_sums(const LossSums& sums) {
  for (const auto& worker : workers_) {
    write_sums(backend_, worker->stream, sums_of(*worker), worker->index == 0 ? sums : LossSums{});
  }
}

std::size_t PartWorkers::memory_bytes() const {
  std::size_t bytes = 0;
  for (const auto& worker : workers_) bytes += worker->context.activation_bytes() + worker->gradients.bytes();
  return bytes;
}

}  // namespace tutti
