#include "part_balancer.hpp"

#include "tutti/base/timing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>
#include <queue>
#include <utility>

namespace tutti {
namespace {

constexpr double kWorthwhile = 0.95;  // of the current step time

// Assigns the remaining parts, each to the rank that would then finish first.
void complete(std::vector<int>& counts, int num_parts, const SecondsPerPart& seconds) {
  using Candidate = std::pair<double, std::size_t>;  // the seconds for the rank's parts and one more, and the rank
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto queue = [&](std::size_t rank) { candidates.push({(counts[rank] + 1) * seconds[rank], rank}); };
  for (std::size_t rank = 0; rank < counts.size(); ++rank) queue(rank);
  for (int given = std::reduce(counts.begin(), counts.end()); given < num_parts; ++given) {
    const std::size_t rank = candidates.top().second;
    candidates.pop();
    ++counts[rank];
    queue(rank);
  }
}

// The shortest step time if some of the slowest ranks are left out.
struct Subset {
  std::vector<std::size_t> left_out;  // ascending
  double seconds = 0;
};

Subset best_subset(int num_parts, const SecondsPerPart& seconds) {
  std::vector<std::size_t> ranks(seconds.size());  // the fastest first
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  std::ranges::stable_sort(ranks, {}, [&](std::size_t rank) { return seconds[rank]; });
  Subset best;
  SecondsPerPart fastest;
  for (auto next = ranks.begin(); next + 1 != ranks.end(); ++next) {
    fastest.push_back(seconds[*next]);
    const double time = step_seconds(assign_by_speed(num_parts, fastest), fastest);
    if (fastest.size() > 1 && time > best.seconds) continue;
    best = {.left_out = {next + 1, ranks.end()}, .seconds = time};
  }
  std::ranges::sort(best.left_out);
  return best;
}

}  // namespace

// If parts are moved, each of the other ranks keeps one at least.
std::vector<int> max_parts_by_rank(const PartMapOptions& options, int num_parts, int num_ranks) {
  std::vector<int> most = PartMap::chosen(options.parts_by_rank, num_parts, num_ranks).parts_by_rank();
  if (options.balanced) std::ranges::fill(most, num_parts - num_ranks + 1);
  return most;
}

double step_seconds(const PartMap& map, const SecondsPerPart& seconds) {
  double slowest = 0;
  for (int rank = 0; rank < map.num_ranks(); ++rank) {
    slowest =
        std::max(slowest, static_cast<double>(map.parts_of(rank).size()) * seconds.at(static_cast<std::size_t>(rank)));
  }
  return slowest;
}

PartMap assign_by_speed(int num_parts, const SecondsPerPart& seconds) {
  std::vector<int> fastest(seconds.size(), 1);
  complete(fastest, num_parts, seconds);
  const double limit = step_seconds(PartMap(fastest), seconds);

  // The even map without what its slow ranks cannot compute in that time.
  std::vector<int> counts = PartMap(num_parts, static_cast<int>(seconds.size())).parts_by_rank();
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    while (counts[rank] * seconds[rank] > limit) --counts[rank];
  }
  complete(counts, num_parts, seconds);
  return PartMap(counts);
}

PartMap reassign(const PartMap& map, const SecondsPerPart& seconds) {
  PartMap best = assign_by_speed(map.num_parts(), seconds);
  return step_seconds(best, seconds) < kWorthwhile * step_seconds(map, seconds) ? best : map;
}

std::string map_note(const PartMap& map, const SecondsPerPart& seconds) {
  constexpr double kMilli = 1e-3;
  const double now = step_seconds(map, seconds);
  const double even = step_seconds(PartMap(map.num_parts(), map.num_ranks()), seconds);
  const Subset subset = best_subset(map.num_parts(), seconds);
  const bool one = subset.left_out.size() == 1;
  const std::string who = fmt::format("rank{} {}", one ? "" : "s", fmt::join(subset.left_out, ","));
  const char* const helps = subset.seconds > now ? (one ? "helps" : "help") : (one ? "does not help" : "do not help");
  return fmt::format(
      "parts {} on {} ranks: step {:.1f} ms predicted, even map {:.1f} ms; predicted without {}: {:.1f} ms, so {} {}",
      fmt::join(map.parts_by_rank(), ","), map.num_ranks(), now / kMilli, even / kMilli, who, subset.seconds / kMilli,
      who, helps);
}

bool is_better_without_some(const PartMap& map, const SecondsPerPart& seconds) {
  return best_subset(map.num_parts(), seconds).seconds < kWorthwhile * step_seconds(map, seconds);
}

PartBalancer::PartBalancer(const RankContext& context, const TrainerOptions& options)
    : context_(context),
      map_(PartMap::chosen(options.part_map.parts_by_rank, options.num_parts, context.communicator.size())),
      max_parts_(max_parts_by_rank(options.part_map, options.num_parts, context.communicator.size())),
      balanced_(options.part_map.balanced && context.communicator.size() > 1) {
  constexpr int kWantedPerRank = 4;
  if (balanced_ && options.num_parts < kWantedPerRank * map_.num_ranks()) {
    notes_.push_back(fmt::format("--part-map auto balances coarsely with {} parts on {} ranks: use at least {} parts",
                                 options.num_parts, map_.num_ranks(), kWantedPerRank * map_.num_ranks()));
  }
}

int PartBalancer::max_parts() const { return max_parts_.at(static_cast<std::size_t>(context_.communicator.rank())); }

int PartBalancer::max_parts_of_any() const { return std::ranges::max(max_parts_); }

bool PartBalancer::after_step(double seconds_per_part) {
  if (times_next_step() && seconds_per_part > 0) times_.push_back(seconds_per_part);
  if (++steps_ != next_balance_ || !balanced_) return false;
  const double mine = times_.empty() ? 0 : quartiles_of(std::exchange(times_, {})).median;
  SecondsPerPart seconds;
  for (const std::int64_t bits : context_.all_gather({std::bit_cast<std::int64_t>(mine)})) {
    seconds.push_back(std::bit_cast<double>(bits));
  }
  const bool first = next_balance_ == kFirstBalance;
  next_balance_ += kStepsBetween;
  // A rank without a sample in these steps has no time.
  if (std::ranges::any_of(seconds, [](double each) { return each <= 0; })) return false;
  const PartMap before = std::exchange(map_, reassign(map_, seconds));
  const bool changed = map_ != before;
  if (changed || (first && is_better_without_some(map_, seconds))) notes_.push_back(map_note(map_, seconds));
  return changed;
}

}  // namespace tutti
