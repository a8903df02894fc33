#include "replica_verifier.hpp"

#include "tutti/base/digest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace tutti {
namespace {

std::int64_t total_of(const std::vector<std::int64_t>& digests) {
  const auto add = [](std::uint64_t sum, std::int64_t digest) { return sum + static_cast<std::uint64_t>(digest); };
  return static_cast<std::int64_t>(std::accumulate(digests.begin(), digests.end(), std::uint64_t{0}, add));
}

// The ranks whose value differs from that of the majority.
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

std::vector<std::string> Divergence::tensors() const {
  std::vector<std::string> names;
  for (const Difference& each : differences) names.push_back(each.tensor);
  return names;
}

std::vector<int> Divergence::ranks() const {
  std::set<int> all;
  for (const Difference& each : differences) {
    all.insert(each.ranks.begin(), each.ranks.end());
    for (int rank = 0; each.ranks.empty() && rank < of_ranks; ++rank) all.insert(rank);
  }
  return {all.begin(), all.end()};
}

std::string Divergence::text() const {
  std::map<std::vector<int>, std::vector<std::string>> tensors_of;
  for (const Difference& each : differences) tensors_of[each.ranks].push_back(each.tensor);
  const auto named = [&](int rank) {
    return hosts.empty() ? fmt::format("rank {}", rank)
                         : fmt::format("rank {} on {}", rank, hosts.at(static_cast<std::size_t>(rank)));
  };
  std::vector<std::string> sentences;
  for (const auto& [ranks, tensors] : tensors_of) {
    std::vector<std::string> who;
    if (ranks.empty()) {
      for (int rank = 0; rank < of_ranks; ++rank) who.push_back(named(rank));
      sentences.push_back(fmt::format("{} differ in {}, and no value has a majority", fmt::join(who, " and "),
                                      fmt::join(tensors, ", ")));
    } else {
      std::ranges::transform(ranks, std::back_inserter(who), named);
      sentences.push_back(fmt::format("{} {} from all others in {}", fmt::join(who, " and "),
                                      who.size() == 1 ? "differs" : "differ", fmt::join(tensors, ", ")));
    }
  }
  return fmt::format("{}", fmt::join(sentences, "; "));
}

ReplicaVerifier::ReplicaVerifier(const RankContext& context, const std::vector<ReplicatedTensor>& tensors)
    : context_(context), digests_(context.backend.allocate(tensors.size() * sizeof(std::int64_t))) {
  for (const auto& [name, values] : tensors) {
    names_.push_back(name);
    starts_.push_back(digest_start(name));
    tensors_.push_back({values, 0});
  }
}

void ReplicaVerifier::record() {
  // The start differs at every record, so that no two records can cancel each other.
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].start = starts_[i] + mix64(records_);
  ++records_;
  context_.backend.add_digests(context_.stream, tensors_, digests_.view(Shape{std::ssize(tensors_)}, ElementType::i64));
}

std::optional<Divergence> ReplicaVerifier::compare() {
  const Digests mine = digests();
  const Digests totals = context_.all_gather({total_of(mine)});
  if (std::ranges::all_of(totals, [&](std::int64_t total) { return total == totals.front(); })) return std::nullopt;
  return divergence(mine);
}

ReplicaVerifier::Digests ReplicaVerifier::digests() {
  record();
  Digests digests(tensors_.size());
  const Tensor on_device = digests_.view(Shape{std::ssize(digests)}, ElementType::i64);
  context_.backend.copy(context_.stream, {digests.data(), on_device.shape, ElementType::i64, MemorySpace::host},
                        on_device);
  context_.stream.synchronize();
  records_ = 0;
  context_.backend.fill_zero(context_.stream, on_device);
  return digests;
}

Divergence ReplicaVerifier::divergence(const Digests& digests) {
  const auto ranks = static_cast<std::size_t>(context_.communicator.size());
  const Digests all = context_.all_gather(digests);
  Divergence found{.differences = {}, .of_ranks = context_.communicator.size(), .hosts = {}};
  for (std::size_t i = 0; i < digests.size(); ++i) {
    Digests by_rank;
    for (std::size_t rank = 0; rank < ranks; ++rank) by_rank.push_back(all[rank * digests.size() + i]);
    if (std::ranges::count(by_rank, by_rank.front()) == std::ssize(by_rank)) continue;
    found.differences.push_back({names_[i], minority_of(by_rank)});
  }
  return found;
}

}  // namespace tutti
