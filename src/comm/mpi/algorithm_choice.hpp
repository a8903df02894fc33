#pragma once
// Chooses the all_reduce algorithm for each size by measuring once. All algorithms give the same bits, so the choice is
// not saved.

#include "tutti/comm/communicator.hpp"
#include "tutti/comm/world.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tutti::mpi {

class AlgorithmChoice {
 public:
  explicit AlgorithmChoice(AllReduceAlgorithm always) : thresholds_{{.algorithm = always}} {}
  // `thresholds` are not empty and ascend by size. Neighbours with the same algorithm are merged.
  explicit AlgorithmChoice(const std::vector<AllReduceThreshold>& thresholds);

  AllReduceAlgorithm for_size(std::int64_t bytes) const;
  const std::vector<AllReduceThreshold>& thresholds() const { return thresholds_; }
  // "direct to 64 KiB, ring above," or "ring", to be followed by " over" and the library's name.
  std::string text() const;

 private:
  std::vector<AllReduceThreshold> thresholds_;
};

constexpr std::int64_t kMaxMeasuredBytes = std::int64_t{4} << 20;

// Runs kTrials all_reduces of this size and returns the mean seconds on this rank.
constexpr int kTrials = 5;
using TimeAllReduce = std::function<double(AllReduceAlgorithm algorithm, std::int64_t bytes)>;

// Measures sizes up to kMaxMeasuredBytes, for about a tenth of a second. Chooses the first candidate unless another one
// is clearly faster, and for sizes that were not measured. All ranks get the same result. Collective.
AlgorithmChoice measured_choice(World& world, const std::vector<AllReduceAlgorithm>& candidates,
                                const TimeAllReduce& time);

}  // namespace tutti::mpi
