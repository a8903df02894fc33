#pragma once
// What a network says of single samples: how probable it takes each class to be. On the host, in double precision from
// the network's outputs, and in the order of the samples.

#include "tutti/comm/world.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace tutti {

struct SampleScore {
  double exponentials = 0;     // the sum of exp(logit - greatest logit); not finite where a logit is NaN or infinite
  std::int32_t label = 0;      // as the data set has it
  std::int32_t predicted = 0;  // the class of the greatest logit, the first of equals
};

// Of samples that follow one another. Borrowed.
struct ChunkScores {
  std::int64_t first = 0;  // number of its first sample
  std::size_t classes = 0;
  std::span<const SampleScore> samples;
  std::span<const float> logits;  // samples x classes

  std::span<const float> logits_of(std::size_t i) const { return logits.subspan(i * classes, classes); }
  // That the network gives to a class; those of a sample add up to 1.
  double probability(std::size_t i, std::size_t of_class) const;
};

// Where the scores of a data set go: chunk by chunk to rank 0, which alone calls `receive`. Every rank holds a few
// chunks at a time. What `receive` throws, all ranks throw.
struct ScoreOutlet {
  World& world;
  std::function<void(const ChunkScores&)> receive;
};

}  // namespace tutti
