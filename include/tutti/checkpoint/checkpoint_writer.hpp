#pragma once
// Saves checkpoints in the background while training goes on: one at a time, in one thread. A save that fails is
// reported and costs nothing else; the checkpoints before it stay.

#include "tutti/checkpoint/checkpoint_store.hpp"

#include <memory>
#include <vector>

namespace tutti {

class CheckpointWriter {
 public:
  // This rank makes `share` of every checkpoint. Prunes by `keep` after each that was proven good.
  CheckpointWriter(CheckpointStore store, FileShare share, KeepRule keep);
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
  class Desk;
  std::unique_ptr<Desk> desk_;
};

}  // namespace tutti
