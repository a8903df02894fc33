#pragma once
// Saves checkpoints in a background thread, one at a time. A failed save is reported; training continues and earlier
// checkpoints are kept.

#include "tutti/storage/checkpoint_store.hpp"

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace tutti {

struct WriterOptions {
  FileShard shard{};                  // the file that this rank writes of every checkpoint
  std::int64_t keep_checkpoints = 3;  // keep the newest N; 0: all
  bool keep_best = false;             // also keep the checkpoint with the best evaluation
};

class CheckpointWriter {
 public:
  // Prunes after each verified save. If the disk is full, also evicts older checkpoints during a save, but never the
  // last intact one.
  CheckpointWriter(CheckpointStore store, const WriterOptions& options);
  // Waits for a save in progress.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Queues the state for saving. Waits only if the previous save is still in progress.
  void save(TrainState state);
  // The saves that have ended since the last call, in order. Does not wait.
  std::vector<SaveReport> take_reports();
  // Waits for the save in progress. If the last one failed, retries it once.
  void finish();
  // Whether the newest queued state has been saved.
  bool newest_is_saved() const;

 private:
  void wait_until_idle(std::unique_lock<std::mutex>& lock);
  void work();
  SaveReport attempt(const TrainState& state);
  void save_with_eviction(const TrainState& state, const KeepRule& keep, SaveReport& report);

  const CheckpointStore store_;
  const WriterOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<TrainState> waiting_;  // queued or being saved
  std::optional<TrainState> unsaved_;  // the newest state, if its save failed
  std::vector<SaveReport> reports_;
  std::vector<std::byte> buffer_;  // reused by the thread, since allocating it takes as long as writing the file
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace tutti
