#include "part_map.hpp"

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

// 0 without parts.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

constexpr double kWorthwhile = 0.95;  // of the current step time

struct Turn {
  double seconds = 0;  // for the rank's parts and one more
  std::size_t rank = 0;
  bool operator>(const Turn& other) const { return std::pair(seconds, rank) > std::pair(other.seconds, other.rank); }
};

// Assigns the remaining parts, each to the rank that would then finish first.
void complete(std::vector<int>& counts, int num_parts, const SecondsPerPart& seconds) {
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  const auto queue = [&](std::size_t rank) { turns.push({(counts[rank] + 1) * seconds[rank], rank}); };
  for (std::size_t rank = 0; rank < counts.size(); ++rank) queue(rank);
  for (int given = std::reduce(counts.begin(), counts.end()); given < num_parts; ++given) {
    const std::size_t rank = turns.top().rank;
    turns.pop();
    ++counts[rank];
    queue(rank);
  }
}

// Ranks in order of speed, the fastest first.
std::vector<std::size_t> by_speed(const SecondsPerPart& seconds) {
  std::vector<std::size_t> ranks(seconds.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  std::ranges::stable_sort(ranks, {}, [&](std::size_t rank) { return seconds[rank]; });
  return ranks;
}

// The least step time, if some of the slowest ranks are left out.
struct Subset {
  std::vector<std::size_t> left_out;  // ascending
  double seconds = 0;
};

Subset best_subset(int num_parts, const SecondsPerPart& seconds) {
  const std::vector<std::size_t> ranks = by_speed(seconds);
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

double step_seconds(const PartPlan& plan, const SecondsPerPart& seconds) {
  double slowest = 0;
  for (int rank = 0; rank < plan.num_ranks(); ++rank) {
    slowest =
        std::max(slowest, static_cast<double>(plan.parts_of(rank).size()) * seconds.at(static_cast<std::size_t>(rank)));
  }
  return slowest;
}

PartPlan assign_by_speed(int num_parts, const SecondsPerPart& seconds) {
  std::vector<int> fastest(seconds.size(), 1);
  complete(fastest, num_parts, seconds);
  const double limit = step_seconds(PartPlan(fastest), seconds);

  // The even map without what its slow ranks cannot compute in that time.
  std::vector<int> counts = PartPlan(num_parts, static_cast<int>(seconds.size())).parts_by_rank();
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    while (counts[rank] * seconds[rank] > limit) --counts[rank];
  }
  complete(counts, num_parts, seconds);
  return PartPlan(counts);
}

PartPlan reassign(const PartPlan& plan, const SecondsPerPart& seconds) {
  PartPlan best = assign_by_speed(plan.num_parts(), seconds);
  return step_seconds(best, seconds) < kWorthwhile * step_seconds(plan, seconds) ? best : plan;
}

std::string map_note(const PartPlan& plan, const SecondsPerPart& seconds) {
  constexpr double kMilli = 1e-3;
  const double now = step_seconds(plan, seconds);
  const Subset subset = best_subset(plan.num_parts(), seconds);
  const bool one = subset.left_out.size() == 1;
  return fmt::format(
      "parts {} on {} ranks: step {:.1f} ms predicted, even map {:.1f} ms; without rank{} {} {:.1f} ms: {} {}worth "
      "keeping",
      fmt::join(plan.parts_by_rank(), ","), plan.num_ranks(), now / kMilli,
      step_seconds(PartPlan(plan.num_parts(), plan.num_ranks()), seconds) / kMilli, one ? "" : "s",
      fmt::join(subset.left_out, ","), subset.seconds / kMilli, one ? "it is" : "they are",
      subset.seconds <= now ? "not " : "");
}

bool is_better_without_some(const PartPlan& plan, const SecondsPerPart& seconds) {
  return best_subset(plan.num_parts(), seconds).seconds < kWorthwhile * step_seconds(plan, seconds);
}

PartAssignment::PartAssignment(const RankContext& rank, const TrainerOptions& options)
    : rank_(rank),
      plan_(PartPlan::chosen(options.part_map.parts_by_rank, options.num_parts, rank.communicator.size())),
      balances_(options.part_map.measured && rank.communicator.size() > 1) {
  constexpr int kWantedPerRank = 4;
  if (balances_ && options.num_parts < kWantedPerRank * plan_.num_ranks()) {
    notes_.push_back(
        fmt::format("--part-map auto can balance {} parts on {} ranks only roughly: {} parts or more are better",
                    options.num_parts, plan_.num_ranks(), kWantedPerRank * plan_.num_ranks()));
  }
}

std::int64_t PartAssignment::most_parts() const { return balances_ ? most_parts_of_any() : parts().size(); }

int PartAssignment::most_parts_of_any() const {
  return balances_ ? plan_.num_parts() - plan_.num_ranks() + 1 : std::ranges::max(plan_.parts_by_rank());
}

bool PartAssignment::after_step(double seconds_per_part) {
  if (measures() && seconds_per_part > 0) measured_.push_back(seconds_per_part);
  if (++steps_ != next_balance_ || !balances_) return false;
  SecondsPerPart seconds;
  for (const std::int64_t bits :
       rank_.all_gather({std::bit_cast<std::int64_t>(median(std::exchange(measured_, {})))})) {
    seconds.push_back(std::bit_cast<double>(bits));
  }
  const bool first = next_balance_ == kFirstBalance;
  next_balance_ += kStepsBetween;
  // A rank without a sample in these steps has no figure.
  if (std::ranges::any_of(seconds, [](double each) { return each <= 0; })) return false;
  const PartPlan before = std::exchange(plan_, reassign(plan_, seconds));
  const bool changed = plan_ != before;
  if (changed || (first && is_better_without_some(plan_, seconds))) notes_.push_back(map_note(plan_, seconds));
  return changed;
}

}  // namespace tutti
