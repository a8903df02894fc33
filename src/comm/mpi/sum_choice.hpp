#pragma once
// Which way sums go, by their size; and how that is found out once, by trying. The choice changes no bit, so none is
// kept beyond a run.

#include "tutti/comm/communicator.hpp"
#include "tutti/comm/world.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tutti::mpi {

class SumChoice {
 public:
  explicit SumChoice(SumAlgorithm always) : thresholds_{{.algorithm = always}} {}
  // By ascending size, one at least; neighbours of the same algorithm become one.
  explicit SumChoice(const std::vector<SumThreshold>& thresholds);

  SumAlgorithm of(std::int64_t bytes) const;
  const std::vector<SumThreshold>& thresholds() const { return thresholds_; }
  // "direct to 64 KiB, ring above," or "ring": what it goes over is to follow.
  std::string text() const;

 private:
  std::vector<SumThreshold> thresholds_;
};

constexpr std::int64_t kLongestMeasured = std::int64_t{4} << 20;

// Runs kSums sums of this size: the seconds of one as this rank measured it.
constexpr int kSums = 5;
using TimeSum = std::function<double(SumAlgorithm algorithm, std::int64_t bytes)>;

// From sums of a few sizes up to kLongestMeasured, or to what a tenth of a second allows. The first candidate is
// taken where none is clearly faster, and for what was not measured. The same on all ranks.
// Collective.
SumChoice measured_choice(World& world, const std::vector<SumAlgorithm>& candidates, const TimeSum& time);

}  // namespace tutti::mpi
