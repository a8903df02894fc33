#pragma once
// Saves checkpoints in a background thread, one at a time. A failed save is reported; training continues and earlier
// checkpoints are kept.

#include "tutti/comm/world.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include <cstddef>
#include <future>
#include <optional>
#include <utility>
#include <vector>

namespace tutti {

// The shard of every checkpoint that this rank saves, for a state of at most `bytes`; empty: none, as on most ranks.
// Collective.
std::optional<FileShard> file_shard(World& world, std::size_t bytes);

struct WriterOptions {
  FileShard shard{};                  // the file that this rank writes of every checkpoint
  std::int64_t keep_checkpoints = 3;  // keep the newest N; 0: all
  bool keep_best = false;             // also keep the checkpoint with the best evaluation
};

// All functions must be called by the same thread. The destructor waits for a save in progress.
class CheckpointWriter {
 public:
  // Prunes after each verified save. If the disk is full, also evicts older checkpoints during a save, but never the
  // last intact one.
  CheckpointWriter(CheckpointStore store, const WriterOptions& options) : store_(std::move(store)), options_(options) {}
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Starts to save the state. Waits only if the previous save is still in progress.
  void save(TrainState state);
  // The saves that have ended since the last call, in order. Does not wait.
  std::vector<SaveReport> take_reports();
  // Waits for the save in progress. If the last one failed, retries it once.
  void finish();
  // Whether the newest state has been saved. Call this after finish().
  bool newest_is_saved() const { return !unsaved_; }

 private:
  void start();
  void wait();
  SaveReport attempt(const TrainState& state);

  const CheckpointStore store_;
  const WriterOptions options_;
  std::vector<SaveReport> reports_;
  std::vector<std::byte> buffer_;      // reused by all saves, since allocating it takes as long as writing the file
  std::optional<TrainState> unsaved_;  // the newest state, until it is saved
  std::future<SaveReport> saving_;     // the last member, so that its thread ends before the others are destroyed
};

}  // namespace tutti
