#pragma once
// Saves checkpoints in the background while training goes on: one at a time, in one thread. A save that fails is
// reported and costs nothing else; the checkpoints before it stay.

#include "tutti/storage/checkpoint_store.hpp"

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace tutti {

struct WriterOptions {
  FileShare share{};                  // of every checkpoint, made by this rank
  std::int64_t keep_checkpoints = 3;  // so many of the newest stay; 0: all
  bool keep_best = false;             // and that of the best evaluation
};

class CheckpointWriter {
 public:
  // Prunes after each checkpoint that was proven good; before that only where the disk is full, and never the last
  // good one.
  CheckpointWriter(CheckpointStore store, const WriterOptions& options);
  // Waits for what is under way.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Takes the state. Waits only for the one before, if that is still under way.
  void save(TrainState state);
  // What has ended since the last call, in order. Does not wait.
  std::vector<SaveReport> take_reports();
  // Waits until nothing is under way; a last save that failed is tried once more.
  void finish();
  // Whether the newest state handed in is safe.
  bool newest_is_saved() const;

 private:
  void wait_until_idle(std::unique_lock<std::mutex>& lock);
  void work();
  SaveReport attempt(const TrainState& state);
  void save_making_room(const TrainState& state, const KeepRule& keep, SaveReport& report);

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

}  // namespace tutti
