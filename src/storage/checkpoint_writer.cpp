#include "tutti/storage/checkpoint_writer.hpp"

#include "tutti/base/process.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/storage/atomic_file.hpp"

#include <exception>
#include <new>
#include <string>
#include <utility>

namespace tutti {
namespace {

// Runs `action` and returns the text of its error; empty on success.
template <class Action>
std::string failure_of(Action action) {
  try {
    action();
    return {};
  } catch (const std::bad_alloc&) {
    return "there is not enough memory for a copy of the state";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointStore store, const WriterOptions& options)
    : store_(std::move(store)), options_(options), thread_([this] { work(); }) {}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointWriter::save(TrainState state) {
  std::unique_lock lock(mutex_);
  wait_until_idle(lock);
  waiting_.emplace(std::move(state));
  unsaved_.reset();
  changed_.notify_all();
}

std::vector<SaveReport> CheckpointWriter::take_reports() {
  const std::lock_guard lock(mutex_);
  return std::exchange(reports_, {});
}

void CheckpointWriter::finish() {
  std::unique_lock lock(mutex_);
  wait_until_idle(lock);
  if (!unsaved_) return;
  waiting_ = std::exchange(unsaved_, std::nullopt);
  changed_.notify_all();
  wait_until_idle(lock);
}

bool CheckpointWriter::newest_is_saved() const {
  const std::lock_guard lock(mutex_);
  return !waiting_ && !unsaved_;
}

void CheckpointWriter::wait_until_idle(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return !waiting_; });
}

void CheckpointWriter::work() {
  lower_priority();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return waiting_ || ending_; });
    if (!waiting_) return;
    lock.unlock();  // no other thread changes waiting_ now
    SaveReport report = attempt(*waiting_);
    lock.lock();
    if (!report.failure.empty()) unsaved_ = std::move(*waiting_);
    reports_.push_back(std::move(report));
    waiting_.reset();
    changed_.notify_all();
  }
}

SaveReport CheckpointWriter::attempt(const TrainState& state) {
  SaveReport report{.step = state.progress.step, .path = store_.path_of(state.progress.step)};
  const Stopwatch watch;
  const KeepRule keep{.newest = options_.keep_checkpoints,
                      .best_step = options_.keep_best ? state.progress.best.step : -1,
                      .last_step = report.step};
  report.failure = failure_of([&] { save_with_eviction(state, keep, report); });
  report.seconds = watch.seconds();
  if (report.failure.empty() && options_.shard.file == 0) {
    report.prune_failure = failure_of([&] { store_.prune(keep); });
  }
  return report;
}

// If the disk is full, evicts the oldest checkpoints until the new one fits.
void CheckpointWriter::save_with_eviction(const TrainState& state, const KeepRule& keep, SaveReport& report) {
  while (true) {
    try {
      report.bytes = store_.save(state, options_.shard, &buffer_).bytes;
      return;
    } catch (const DiskFull& failure) {
      const auto step = store_.evict_oldest(keep);
      if (!step) throw;
      report.evicted_steps.push_back(*step);
      if (report.eviction_reason.empty()) report.eviction_reason = failure.what();
    }
  }
}

}  // namespace tutti
