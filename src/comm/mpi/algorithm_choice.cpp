#include "algorithm_choice.hpp"

#include "tutti/base/timing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

namespace tutti::mpi {
namespace {

constexpr std::int64_t kShortest = std::int64_t{1} << 10;
constexpr std::int64_t kGrowth = 4;
constexpr int kRounds = 2;
constexpr double kMinSpeedup = 1.2;
// Stops before a size with which the whole measurement is expected to take longer than this.
constexpr double kMaxSeconds = 0.1;

// Prefers the first candidate unless another one is much faster, since timings on a busy machine vary.
std::size_t clearly_fastest(const std::vector<double>& seconds) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < seconds.size(); ++i) {
    if (kMinSpeedup * seconds[i] < seconds[best]) best = i;
  }
  return best;
}

std::string text_of_bytes(std::int64_t bytes) {
  return bytes < (1 << 20) ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} MiB", bytes >> 20);
}

}  // namespace

AllReduceAlgorithm algorithm_for(const std::vector<AllReduceThreshold>& thresholds, std::int64_t bytes) {
  const auto found = std::ranges::lower_bound(thresholds.begin(), std::prev(thresholds.end()), bytes, {},
                                              &AllReduceThreshold::up_to_bytes);
  return found->algorithm;
}

std::string text_of(const std::vector<AllReduceThreshold>& thresholds) {
  std::string text;
  for (std::size_t i = 0; i + 1 < thresholds.size(); ++i) {
    text += fmt::format("{} to {}, ", name_of(thresholds[i].algorithm), text_of_bytes(thresholds[i].up_to_bytes));
  }
  return fmt::format("{}{}{}", text, name_of(thresholds.back().algorithm), thresholds.size() > 1 ? " above," : "");
}

std::vector<AllReduceThreshold> measure_thresholds(World& world, const std::vector<AllReduceAlgorithm>& candidates,
                                                   const TimeAllReduce& time) {
  std::vector<AllReduceThreshold> thresholds;
  const auto add_threshold = [&](std::int64_t up_to_bytes, AllReduceAlgorithm algorithm) {
    if (!thresholds.empty() && thresholds.back().algorithm == algorithm) thresholds.pop_back();
    thresholds.push_back({up_to_bytes, algorithm});
  };
  const Stopwatch watch;
  bool continues = true;
  std::int64_t bytes = kShortest;
  for (; bytes <= kMaxMeasuredBytes && continues; bytes *= kGrowth) {
    std::vector<double> seconds(candidates.size(), std::numeric_limits<double>::infinity());
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < candidates.size(); ++i) seconds[i] = std::min(seconds[i], time(candidates[i], bytes));
    }
    seconds.push_back(watch.seconds());
    seconds = max_over_ranks(world, std::move(seconds));
    const double so_far = seconds.back();
    seconds.pop_back();
    // The threshold is the geometric mean of this size and the next.
    add_threshold(2 * bytes, candidates[clearly_fastest(seconds)]);
    const double expected = kRounds * kTrials * kGrowth * std::reduce(seconds.begin(), seconds.end());
    continues = so_far + expected < kMaxSeconds;
  }
  if (bytes <= kMaxMeasuredBytes) add_threshold(bytes, candidates.front());
  thresholds.back().up_to_bytes = AllReduceThreshold{}.up_to_bytes;
  return thresholds;
}

}  // namespace tutti::mpi
