#include "replica_verifier.hpp"

#include "tutti/base/digest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace tutti {
namespace {

std::int64_t total_of(const std::vector<std::int64_t>& digests) {
  const auto add = [](std::uint64_t sum, std::int64_t digest) { return sum + static_cast<std::uint64_t>(digest); };
  return static_cast<std::int64_t>(std::accumulate(digests.begin(), digests.end(), std::uint64_t{0}, add));
}

// The ranks whose value differs from that of the majority; empty if there is no majority.
std::vector<int> minority_of(const std::vector<std::int64_t>& by_rank) {
  std::map<std::int64_t, std::size_t> holders;
  for (const std::int64_t value : by_rank) ++holders[value];
  const auto most = std::ranges::max_element(holders, {}, [](const auto& holder) { return holder.second; });
  std::vector<int> others;
  if (2 * most->second <= by_rank.size()) return others;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (by_rank[rank] != most->first) others.push_back(static_cast<int>(rank));
  }
  return others;
}

}  // namespace

ReplicaVerifier::ReplicaVerifier(const RankContext& context, const std::vector<ReplicatedTensor>& tensors,
                                 std::vector<std::string> hosts)
    : context_(context), hosts_(std::move(hosts)), digests_(context.backend, std::ssize(tensors), ElementType::i64) {
  for (const auto& [name, values] : tensors) {
    names_.push_back(name);
    tensors_.push_back({values, 0});
  }
}

void ReplicaVerifier::record() {
  // The start differs at every record, so that no two records can cancel each other.
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].start = digest_start(names_[i]) + mix64(records_);
  ++records_;
  context_.backend.add_digests(context_.stream, tensors_, digests_.values);
}

std::optional<DivergenceReport> ReplicaVerifier::compare() {
  const Digests mine = digests();
  const Digests totals = context_.all_gather({total_of(mine)});
  if (std::ranges::count(totals, totals.front()) == std::ssize(totals)) return std::nullopt;

  const Digests all = context_.all_gather(mine);
  DivergenceReport found;
  std::map<std::vector<int>, std::vector<std::string>> tensors_by_ranks;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    Digests by_rank;
    for (std::size_t rank = 0; rank < totals.size(); ++rank) by_rank.push_back(all[rank * mine.size() + i]);
    if (std::ranges::count(by_rank, by_rank.front()) == std::ssize(by_rank)) continue;
    found.tensors.push_back(names_[i]);
    tensors_by_ranks[minority_of(by_rank)].push_back(names_[i]);
  }
  std::set<int> ranks;
  std::vector<std::string> sentences;
  for (const auto& [minority, tensors] : tensors_by_ranks) {
    std::vector<int> differing = minority;
    if (minority.empty()) {
      differing.resize(totals.size());
      std::iota(differing.begin(), differing.end(), 0);
    }
    ranks.insert(differing.begin(), differing.end());
    std::vector<std::string> named;
    for (const int rank : differing) {
      named.push_back(fmt::format("rank {}", rank));
      if (!hosts_.empty()) named.back() += " on " + hosts_.at(static_cast<std::size_t>(rank));
    }
    const std::string names = fmt::format("{}", fmt::join(tensors, ", "));
    sentences.push_back(fmt::format(
        "{} {}", fmt::join(named, " and "),
        minority.empty() ? fmt::format("differ in {}, and no value has a majority", names)
                         : fmt::format("{} from all others in {}", named.size() == 1 ? "differs" : "differ", names)));
  }
  found.ranks = {ranks.begin(), ranks.end()};
  found.text = fmt::format("{}", fmt::join(sentences, "; "));
  return found;
}

ReplicaVerifier::Digests ReplicaVerifier::digests() {
  record();
  Digests digests(tensors_.size());
  context_.backend.copy(context_.stream, {digests.data(), digests_.values.shape, ElementType::i64}, digests_.values);
  context_.stream.synchronize();
  records_ = 0;
  context_.backend.fill_zero(context_.stream, digests_.values);
  return digests;
}

}  // namespace tutti
