#include "tutti/checkpoint/checkpoint_writer.hpp"

#include "tutti/base/process.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/storage/whole_file.hpp"

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tutti {
namespace {

std::string words_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::bad_alloc&) {
    return "there is not enough memory for a copy of the state";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

class CheckpointWriter::Desk {
 public:
  Desk(CheckpointStore store, const WriterOptions& options)
      : store_(std::move(store)), options_(options), thread_([this] { work(); }) {}

  ~Desk() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Desk(const Desk&) = delete;
  Desk& operator=(const Desk&) = delete;

  void save(TrainState state) {
    std::unique_lock lock(mutex_);
    wait_until_idle(lock);
    waiting_.emplace(std::move(state));
    unsaved_.reset();
    changed_.notify_all();
  }

  std::vector<SaveReport> take_reports() {
    const std::lock_guard lock(mutex_);
    return std::exchange(reports_, {});
  }

  void finish() {
    std::unique_lock lock(mutex_);
    wait_until_idle(lock);
    if (!unsaved_) return;
    waiting_ = std::exchange(unsaved_, std::nullopt);
    changed_.notify_all();
    wait_until_idle(lock);
  }

  bool newest_is_saved() const {
    const std::lock_guard lock(mutex_);
    return !waiting_ && !unsaved_;
  }

 private:
  void wait_until_idle(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [this] { return !waiting_; });
  }

  void work() {
    lower_priority();
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return waiting_ || ending_; });
      if (!waiting_) return;
      lock.unlock();  // nobody changes what is waiting
      SaveReport report = attempt(*waiting_);
      lock.lock();
      if (!report.failure.empty()) unsaved_ = std::move(*waiting_);
      reports_.push_back(std::move(report));
      waiting_.reset();
      changed_.notify_all();
    }
  }

  SaveReport attempt(const TrainState& state) {
    SaveReport report{.step = state.progress.step, .path = store_.path_of(state.progress.step)};
    const Stopwatch watch;
    const KeepRule keep{.newest = options_.keep_checkpoints,
                        .best_step = options_.keep_best ? state.progress.best.step : -1,
                        .last_step = report.step};
    try {
      save_making_room(state, keep, report);
    } catch (...) {
      report.failure = words_of(std::current_exception());
    }
    report.seconds = watch.seconds();
    if (!report.failure.empty() || options_.share.file != 0) return report;
    try {
      store_.prune(keep);
    } catch (...) {
      report.prune_failure = words_of(std::current_exception());
    }
    return report;
  }

  // Where the disk is full, the oldest checkpoints are given up rather than the newest state.
  void save_making_room(const TrainState& state, const KeepRule& keep, SaveReport& report) {
    while (true) {
      try {
        report.bytes = store_.save(state, options_.share, room_).bytes;
        return;
      } catch (const NoRoom& failure) {
        const auto step = store_.give_up_oldest(keep);
        if (!step) throw;
        report.given_up.push_back(*step);
        if (report.no_room.empty()) report.no_room = failure.what();
      }
    }
  }

  const CheckpointStore store_;
  const WriterOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<TrainState> waiting_;  // or being saved
  std::optional<TrainState> unsaved_;  // the newest, when saving it has failed
  std::vector<SaveReport> reports_;
  std::vector<std::byte> room_;  // of the thread's files, kept: the system's giving it anew takes as long as writing
  bool ending_ = false;
  std::thread thread_;
};

CheckpointWriter::CheckpointWriter(CheckpointStore store, const WriterOptions& options)
    : desk_(std::make_unique<Desk>(std::move(store), options)) {}
CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::save(TrainState state) { desk_->save(std::move(state)); }
std::vector<SaveReport> CheckpointWriter::take_reports() { return desk_->take_reports(); }
void CheckpointWriter::finish() { desk_->finish(); }
bool CheckpointWriter::newest_is_saved() const { return desk_->newest_is_saved(); }

}  // namespace tutti
