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

// Here and below, the thresholds are not empty and ascend by size.
AllReduceAlgorithm algorithm_for(const std::vector<AllReduceThreshold>& thresholds, std::int64_t bytes);
// "direct to 64 KiB, ring above," or "ring", to be followed by " over" and the library's name.
std::string text_of(const std::vector<AllReduceThreshold>& thresholds);

constexpr std::int64_t kMaxMeasuredBytes = std::int64_t{4} << 20;

// Runs kTrials all_reduces of this size and returns the mean seconds on this rank.
constexpr int kTrials = 5;
using TimeAllReduce = std::function<double(AllReduceAlgorithm algorithm, std::int64_t bytes)>;

// Measures sizes up to kMaxMeasuredBytes, for about a tenth of a second. Chooses the first candidate unless another one
// is clearly faster, and for sizes that were not measured. All ranks get the same result. Collective.
std::vector<AllReduceThreshold> measure_thresholds(World& world, const std::vector<AllReduceAlgorithm>& candidates,
                                                   const TimeAllReduce& time);

}  // namespace tutti::mpi
