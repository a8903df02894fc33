#pragma once
// The scores of one chunk, taken from a player's network once it has played it, or received from another rank.

#include "tutti/train/sample_scores.hpp"

#include "part_team.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

// In the host's memory.
struct HeldScores {
  std::size_t classes = 0;
  std::vector<SampleScore> samples{};
  std::vector<float> logits{};

  void resize(std::int64_t count);
  // Borrowed.
  ChunkScores from(std::int64_t first) const { return {first, classes, samples, logits}; }
};

class ChunkScorer {
 public:
  // `backend` is borrowed.
  ChunkScorer(Backend& backend, int classes, std::int64_t most_samples);

  // Of the batch that the player's network has just played. Waits for its stream.
  void take(Player& player, const Batch& batch);
  HeldScores& held() noexcept { return held_; }

 private:
  Backend& backend_;
  Buffer plain_;  // the logits in the processor's memory
  std::vector<std::int32_t> labels_;
  HeldScores held_;
};

}  // namespace tutti
