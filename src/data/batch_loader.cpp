#include "tutti/data/batch_loader.hpp"

#include "tutti/base/error.hpp"

#include "batch_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <set>
#include <stop_token>
#include <thread>
#include <utility>

namespace tutti {
namespace {

std::set<std::int64_t> sizes_of_slices(std::int64_t length, const LoaderPlan& plan) {
  const bool is_keep = plan.last_batch == LastBatch::keep;
  const bool has_whole = plan.last_batch == LastBatch::rollover ? length > 0 : length >= plan.batch_size;
  std::set<std::int64_t> sizes;
  for (std::int64_t part = plan.parts.begin; part < plan.parts.end; ++part) {
    const auto slice = [&](std::int64_t n) { return part_positions(n, plan.num_parts, static_cast<int>(part)).size(); };
    if (has_whole) sizes.insert(slice(plan.batch_size));
    if (is_keep) sizes.insert(slice(length % plan.batch_size));
  }
  sizes.erase(0);
  return sizes;
}

}  // namespace

class BatchLoader::Pipeline {
 public:
  Pipeline(const Dataset& data, Backend& backend, const LoaderPlan& plan);

  const SplitBatchSampler& schedule() const { return schedule_; }
  std::vector<std::int64_t> slice_sizes() const { return {slice_sizes_.begin(), slice_sizes_.end()}; }
  void seek(std::int64_t epoch, std::int64_t step);
  const StepBatches& next();

 private:
  struct Position {
    std::int64_t epoch = 0;
    std::int64_t step = 0;
  };
  struct Slot {
    StepBatches step;
    std::vector<Buffer> images;  // by part of this rank
    std::vector<Buffer> labels;
  };

  bool has_steps() const;
  Position first_from(Position position) const;
  Slot make_slot() const;
  void prepare(Slot& slot, Position position, const std::stop_token& stop);
  const StepBatches& prepare_now();
  const StepBatches& await_prepared();
  void run(const std::stop_token& stop);

  const LoaderPlan plan_;
  const std::int64_t length_;
  const SplitBatchSampler schedule_;
  const std::set<std::int64_t> slice_sizes_;
  std::vector<SplitBatchSampler> samplers_;
  BatchWriter writer_;
  std::vector<Slot> slots_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  Position position_;         // of the step to prepare next
  std::uint64_t course_ = 0;  // how often seek() has changed the course
  std::vector<Slot*> free_;
  std::deque<Slot*> ready_;
  Slot* lent_ = nullptr;
  std::exception_ptr failure_;

  std::jthread thread_;  // the last member: stopped and joined before the others go
};

BatchLoader::Pipeline::Pipeline(const Dataset& data, Backend& backend, const LoaderPlan& plan)
    : plan_(plan),
      length_(data.info().samples),
      schedule_(length_, plan.batch_size, plan.num_parts, 0, plan.last_batch, plan.order),
      slice_sizes_(sizes_of_slices(length_, plan)),
      samplers_(SplitBatchSampler::for_parts(length_, plan.batch_size, plan.num_parts, plan.parts, plan.last_batch,
                                             plan.order)),
      writer_(data, backend, slice_sizes_.empty() ? 0 : *slice_sizes_.rbegin()) {
  if (plan.steps_ahead < 0) {
    throw Error(ErrorSource::usage, fmt::format("{} steps prepared ahead: give 0 or more", plan.steps_ahead));
  }
  position_ = first_from({0, 0});
  for (int i = 0; i <= plan.steps_ahead; ++i) slots_.push_back(make_slot());
  for (Slot& slot : slots_) free_.push_back(&slot);
  if (plan.steps_ahead > 0) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
}

bool BatchLoader::Pipeline::has_steps() const {
  return length_ > 0 && (plan_.last_batch != LastBatch::discard || length_ >= plan_.batch_size);
}

// The position itself, or the first step of the next epoch that has any.
BatchLoader::Pipeline::Position BatchLoader::Pipeline::first_from(Position position) const {
  if (!has_steps()) return {position.epoch, 0};
  while (position.step >= schedule_.steps(position.epoch)) position = {position.epoch + 1, 0};
  return position;
}

BatchLoader::Pipeline::Slot BatchLoader::Pipeline::make_slot() const {
  const std::int64_t most = slice_sizes_.empty() ? 0 : *slice_sizes_.rbegin();
  Slot slot;
  for (std::size_t i = 0; i < samplers_.size(); ++i) {
    slot.images.push_back(writer_.allocate_images(most));
    slot.labels.push_back(writer_.allocate_labels(most));
  }
  return slot;
}

void BatchLoader::Pipeline::prepare(Slot& slot, Position position, const std::stop_token& stop) {
  if (!has_steps()) {
    throw Error(ErrorSource::usage, fmt::format("{} samples make no batch of {}: give a smaller --batch-size or "
                                                "--last-batch keep",
                                                length_, plan_.batch_size));
  }
  slot.step = {position.epoch, position.step, schedule_.batch_samples(position.epoch, position.step), {}};
  for (std::size_t i = 0; i < samplers_.size() && !stop.stop_requested(); ++i) {
    const auto samples = samplers_[i].indices(position.epoch, position.step);
    Batch batch = writer_.write(samples, slot.images[i], slot.labels[i]);
    batch.part = static_cast<int>(plan_.parts.begin) + static_cast<int>(i);
    slot.step.batches.push_back(batch);
  }
}

void BatchLoader::Pipeline::seek(std::int64_t epoch, std::int64_t step) {
  if (step < 0) throw Error(ErrorSource::internal, fmt::format("step {} of epoch {}", step, epoch));
  const Position target = first_from({epoch, step});
  const std::scoped_lock lock(mutex_);
  position_ = target;
  ++course_;
  failure_ = nullptr;
  free_.insert(free_.end(), ready_.begin(), ready_.end());
  ready_.clear();
  if (lent_ != nullptr) free_.push_back(std::exchange(lent_, nullptr));
  changed_.notify_all();
}

const StepBatches& BatchLoader::Pipeline::next() { return plan_.steps_ahead == 0 ? prepare_now() : await_prepared(); }

const StepBatches& BatchLoader::Pipeline::prepare_now() {
  Slot& only = slots_.front();
  prepare(only, position_, {});
  position_ = first_from({position_.epoch, position_.step + 1});
  return only.step;
}

const StepBatches& BatchLoader::Pipeline::await_prepared() {
  std::unique_lock lock(mutex_);
  if (lent_ != nullptr) free_.push_back(std::exchange(lent_, nullptr));
  changed_.notify_all();
  changed_.wait(lock, [this] { return !ready_.empty() || failure_ != nullptr; });
  if (ready_.empty()) std::rethrow_exception(failure_);
  lent_ = ready_.front();
  ready_.pop_front();
  return lent_->step;
}

void BatchLoader::Pipeline::run(const std::stop_token& stop) {
  while (true) {
    std::unique_lock lock(mutex_);
    const bool may_go_on =
        changed_.wait(lock, stop, [this] { return !free_.empty() && failure_ == nullptr; }) && !stop.stop_requested();
    if (!may_go_on) return;
    Slot* slot = free_.back();
    free_.pop_back();
    const Position position = position_;
    const std::uint64_t course = course_;
    lock.unlock();

    std::exception_ptr failure;
    Position following;
    try {
      prepare(*slot, position, stop);
      following = first_from({position.epoch, position.step + 1});
    } catch (...) {
      failure = std::current_exception();
    }

    lock.lock();
    const bool is_wanted = course == course_;
    if (is_wanted) failure_ = failure;
    if (is_wanted && failure == nullptr) {
      ready_.push_back(slot);
      position_ = following;
    } else {
      free_.push_back(slot);
    }
    changed_.notify_all();
  }
}

BatchLoader::BatchLoader(const Dataset& data, Backend& backend, const LoaderPlan& plan)
    : pipeline_(std::make_unique<Pipeline>(data, backend, plan)) {}

BatchLoader::~BatchLoader() = default;

std::int64_t BatchLoader::steps(std::int64_t epoch) const { return pipeline_->schedule().steps(epoch); }
std::int64_t BatchLoader::remainder(std::int64_t epoch) const { return pipeline_->schedule().remainder(epoch); }
std::vector<std::int64_t> BatchLoader::slice_sizes() const { return pipeline_->slice_sizes(); }
void BatchLoader::seek(std::int64_t epoch, std::int64_t step) { pipeline_->seek(epoch, step); }
const StepBatches& BatchLoader::next() { return pipeline_->next(); }

ChunkReader::ChunkReader(const Dataset& data, Backend& backend, std::int64_t most_samples)
    : most_samples_(most_samples), writer_(std::make_unique<BatchWriter>(data, backend, most_samples)) {
  images_ = writer_->allocate_images(most_samples);
  labels_ = writer_->allocate_labels(most_samples);
}

ChunkReader::~ChunkReader() = default;

Batch ChunkReader::read(std::int64_t first, std::int64_t count) {
  if (count < 0 || count > most_samples_) {
    throw Error(ErrorSource::internal,
                fmt::format("a chunk of {} samples from a reader made for {}", count, most_samples_));
  }
  std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), first);
  return writer_->write(samples, images_, labels_);
}

}  // namespace tutti
