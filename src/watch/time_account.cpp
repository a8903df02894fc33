#include "tutti/watch/time_account.hpp"

#include "tutti/base/quartiles.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

namespace tutti {
namespace {

// Steps between two looks at all ranks' waits within an epoch: rare enough to cost nothing, and so often that the
// waits take little memory.
constexpr std::int64_t kStepsBetweenFolds = 1024;

TimeShare share_of(Phase phase) {
  switch (phase) {
    case Phase::data:
      return TimeShare::data;
    case Phase::forward:
    case Phase::backward:
    case Phase::update:
      return TimeShare::compute;
    case Phase::exchange:
      return TimeShare::communication;
    case Phase::waiting:
      return TimeShare::waiting;
    case Phase::evaluation:
      return TimeShare::evaluation;
    case Phase::checkpoint:
      return TimeShare::checkpoint;
    case Phase::starting:
    case Phase::reports:
    case Phase::ending:
      return TimeShare::other;
  }
  return TimeShare::other;
}

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// Each rank's waits, cut to the number that all have: where work is enqueued, some ranks know of more collectives.
std::vector<std::vector<float>> common_waits(World& world, std::span<const float> mine) {
  std::vector<std::vector<float>> all;
  std::size_t common = std::numeric_limits<std::size_t>::max();
  for (const auto& bytes : world.all_gather(std::as_bytes(mine))) {
    std::vector<float>& theirs = all.emplace_back(bytes.size() / sizeof(float));
    if (!bytes.empty()) std::memcpy(theirs.data(), bytes.data(), bytes.size());
    common = std::min(common, theirs.size());
  }
  for (auto& theirs : all) theirs.resize(common);
  return all;
}

}  // namespace

TimeAccount::TimeAccount(World& world, RankStatus& rank_status)
    : world_(world),
      rank_status_(rank_status),
      hosts_(all_gather_text(world, world.host())),
      waited_for_(hosts_.size()) {
  rank_status_.enter(rank_status_.place().phase);
  rank_status_.add(*this);
}

TimeAccount::~TimeAccount() { rank_status_.remove(*this); }

void TimeAccount::on_end(const Stay& stay) {
  const std::int64_t spent = stay.end_ns - stay.begin_ns;
  spent_ns_[static_cast<std::size_t>(stay.place.phase)] += spent;
  if (stay.place.phase == Phase::waiting) waits_.push_back(static_cast<float>(seconds(spent)));
}

void TimeAccount::count_step() {
  if (++steps_ % kStepsBetweenFolds == 0) fold();
}

void TimeAccount::fold() {
  const auto all = rank_status_.meet([&] { return common_waits(world_, waits_); });
  const std::size_t ranks = all.size();
  const std::size_t collectives = all.front().size();
  for (std::size_t collective = 0; collective < collectives; ++collective) {
    std::size_t last = 0;
    double sum = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      sum += static_cast<double>(all[rank][collective]);
      if (all[rank][collective] < all[last][collective]) last = rank;
    }
    const auto transfer = static_cast<double>(all[last][collective]);
    transfers_ += transfer;
    if (ranks > 1) {
      waited_for_[last] += (sum - transfer * static_cast<double>(ranks)) / static_cast<double>(ranks - 1);
    }
  }
  waits_.erase(waits_.begin(), waits_.begin() + static_cast<std::ptrdiff_t>(collectives));
}

TimeReport TimeAccount::report() {
  rank_status_.meet([&] { return world_.agree(true); });  // so that who is late now is waited for in this account
  const auto spent = std::exchange(spent_ns_, {});
  fold();
  TimeShares mine;
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    mine[share_of(static_cast<Phase>(phase))] += seconds(spent[phase]);
  }
  const double transfers = std::min(std::exchange(transfers_, 0), mine[TimeShare::waiting]);  // but for rounding
  mine[TimeShare::waiting] -= transfers;
  mine[TimeShare::communication] += transfers;

  TimeReport report;
  for (const auto& figures : all_gather_figures(world_, {mine.seconds.begin(), mine.seconds.end()})) {
    std::ranges::copy(figures, report.ranks.emplace_back().seconds.begin());
  }
  if (world_.size() > 1) report.latest = latest(report.ranks);
  std::ranges::fill(waited_for_, 0);
  return report;
}

LateRank TimeAccount::latest(const std::vector<TimeShares>& ranks) const {
  const auto rank = std::ranges::max_element(waited_for_) - waited_for_.begin();
  LateRank latest{.rank = static_cast<int>(rank),
                  .host = hosts_[static_cast<std::size_t>(rank)],
                  .seconds = waited_for_[static_cast<std::size_t>(rank)]};
  double most = -1;
  for (std::size_t i = 0; i < kTimeShares; ++i) {
    const auto share = static_cast<TimeShare>(i);
    if (share == TimeShare::waiting) continue;
    std::vector<double> others;
    for (std::size_t other = 0; other < ranks.size(); ++other) {
      if (std::cmp_not_equal(other, rank)) others.push_back(ranks[other][share]);
    }
    const double more = ranks[static_cast<std::size_t>(rank)][share] - quartiles_of(others).median;
    if (more > most) {
      most = more;
      latest.cause = share;
    }
  }
  return latest;
}

}  // namespace tutti
