#include "sum_choice.hpp"

#include "tutti/base/timing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace tutti::mpi {
namespace {

constexpr std::int64_t kShortest = std::int64_t{1} << 10;
constexpr std::int64_t kGrowth = 4;
constexpr int kRounds = 2;
constexpr double kClearly = 1.2;
// A size is left out, and all above it, when all would take longer with it than this, going by the one before.
constexpr double kMostSeconds = 0.1;

// A machine that is busy makes differences of its own: the first is left for one that is much faster.
std::size_t clearly_fastest(const std::vector<double>& seconds) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < seconds.size(); ++i) {
    if (kClearly * seconds[i] < seconds[best]) best = i;
  }
  return best;
}

std::string text_of_bytes(std::int64_t bytes) {
  return bytes < (1 << 20) ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} MiB", bytes >> 20);
}

}  // namespace

SumChoice::SumChoice(const std::vector<SumThreshold>& thresholds) {
  for (const SumThreshold& threshold : thresholds) {
    if (!thresholds_.empty() && thresholds_.back().algorithm == threshold.algorithm) thresholds_.pop_back();
    thresholds_.push_back(threshold);
  }
}

SumAlgorithm SumChoice::of(std::int64_t bytes) const {
  const auto found =
      std::ranges::find_if(thresholds_, [=](const SumThreshold& threshold) { return bytes <= threshold.up_to_bytes; });
  return found == thresholds_.end() ? thresholds_.back().algorithm : found->algorithm;
}

std::string SumChoice::text() const {
  std::string text;
  for (std::size_t i = 0; i + 1 < thresholds_.size(); ++i) {
    text += fmt::format("{} to {}, ", name_of(thresholds_[i].algorithm), text_of_bytes(thresholds_[i].up_to_bytes));
  }
  return text + name_of(thresholds_.back().algorithm) + (thresholds_.size() > 1 ? " above," : "");
}

SumChoice measured_choice(World& world, const std::vector<SumAlgorithm>& candidates, const TimeSum& time) {
  std::vector<SumThreshold> thresholds;
  const Stopwatch watch;
  bool goes_on = true;
  std::int64_t bytes = kShortest;
  for (; bytes <= kLongestMeasured && goes_on; bytes *= kGrowth) {
    std::vector<double> seconds(candidates.size(), std::numeric_limits<double>::infinity());
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < candidates.size(); ++i) seconds[i] = std::min(seconds[i], time(candidates[i], bytes));
    }
    seconds.push_back(watch.seconds());
    seconds = greatest_of_ranks(world, std::move(seconds));
    const double so_far = seconds.back();
    seconds.pop_back();
    // Between two sizes, in the middle of their orders.
    thresholds.push_back({2 * bytes, candidates[clearly_fastest(seconds)]});
    const double expected = kRounds * kSums * kGrowth * std::reduce(seconds.begin(), seconds.end());
    goes_on = so_far + expected < kMostSeconds;
  }
  if (bytes <= kLongestMeasured) thresholds.push_back({0, candidates.front()});
  return SumChoice(thresholds);
}

}  // namespace tutti::mpi

namespace tutti {

const char* name_of(SumAlgorithm algorithm) {
  switch (algorithm) {
    case SumAlgorithm::ring:
      return "ring";
    case SumAlgorithm::direct:
      return "direct";
    case SumAlgorithm::window:
      return "window";
    case SumAlgorithm::automatic:
      return "automatic";
  }
  return "";
}

}  // namespace tutti
