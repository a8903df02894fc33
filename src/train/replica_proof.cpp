#include "replica_proof.hpp"

#include "tutti/base/digest.hpp"

#include "elements.hpp"
#include "ownership.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>

namespace tutti {
namespace {

std::int64_t total_of(const std::vector<std::int64_t>& digests) {
  const auto add = [](std::uint64_t sum, std::int64_t digest) { return sum + static_cast<std::uint64_t>(digest); };
  return static_cast<std::int64_t>(std::accumulate(digests.begin(), digests.end(), std::uint64_t{0}, add));
}

// The ranks that hold something else than more than half of them do.
std::vector<int> minority_of(const std::vector<std::int64_t>& by_rank) {
  std::map<std::int64_t, std::size_t> holders;
  for (const std::int64_t value : by_rank) ++holders[value];
  const auto most = std::ranges::max_element(holders, {}, [](const auto& held) { return held.second; });
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
      sentences.push_back(fmt::format("{} differ in {}, and no majority says who is right", fmt::join(who, " and "),
                                      fmt::join(tensors, ", ")));
    } else {
      std::ranges::transform(ranks, std::back_inserter(who), named);
      sentences.push_back(fmt::format("{} {} from all others in {}", fmt::join(who, " and "),
                                      who.size() == 1 ? "differs" : "differ", fmt::join(tensors, ", ")));
    }
  }
  return fmt::format("{}", fmt::join(sentences, "; "));
}

ReplicaProof::ReplicaProof(Backend& backend, Communicator& communicator, RankStatus& rank_status,
                           const std::vector<ReplicatedTensor>& tensors)
    : backend_(backend),
      communicator_(communicator),
      rank_status_(rank_status),
      digests_(backend.allocate(tensors.size() * sizeof(std::int64_t))),
      totals_(communicator.allocate(static_cast<std::size_t>(communicator.size()) * sizeof(std::int64_t))) {
  for (const auto& [name, values] : tensors) {
    names_.push_back(name);
    starts_.push_back(digest_start(name));
    tensors_.push_back({values, 0});
  }
}

void ReplicaProof::note(Stream& stream) {
  // Others at every note, so that no two of them can make up for each other.
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].start = starts_[i] + mix64(notes_);
  ++notes_;
  backend_.add_digests(stream, tensors_, digests_.view(Shape{std::ssize(tensors_)}, ElementType::i64));
}

std::optional<Divergence> ReplicaProof::compare(Stream& stream) {
  const Words mine = digests(stream);
  const Words totals = gather(stream, {total_of(mine)}, totals_);
  if (std::ranges::all_of(totals, [&](std::int64_t total) { return total == totals.front(); })) return std::nullopt;
  return divergence(stream, mine);
}

ReplicaProof::Words ReplicaProof::digests(Stream& stream) {
  note(stream);
  Words digests(tensors_.size());
  const Shape shape{std::ssize(digests)};
  backend_.copy(stream, {digests.data(), shape, ElementType::i64, MemorySpace::host},
                digests_.view(shape, ElementType::i64));
  stream.synchronize();
  notes_ = 0;
  backend_.fill_zero(stream, digests_.view(shape, ElementType::i64));
  return digests;
}

ReplicaProof::Words ReplicaProof::gather(Stream& stream, const Words& mine, const Buffer& memory) {
  const std::int64_t row = std::ssize(mine);
  const std::int64_t begin = row * communicator_.rank();
  Words all(mine.size() * static_cast<std::size_t>(communicator_.size()));
  std::ranges::copy(mine, all.begin() + begin);
  const Shape shape{std::ssize(all)};
  const Tensor rows = memory.view(shape, ElementType::i64);
  const Tensor host{all.data(), shape, ElementType::i64, MemorySpace::host};
  backend_.copy(stream, elements_of(rows, {begin, begin + row}), elements_of(host, {begin, begin + row}));
  return rank_status_.wait_for_ranks([&] {
    pass_on_rows(communicator_, rows, stream);
    communicator_.finish(stream);
    backend_.copy(stream, host, rows);
    stream.synchronize();
    return std::move(all);
  });
}

Divergence ReplicaProof::divergence(Stream& stream, const Words& digests) {
  const auto ranks = static_cast<std::size_t>(communicator_.size());
  const Words all = gather(stream, digests, communicator_.allocate(ranks * digests.size() * sizeof(std::int64_t)));
  Divergence found{.differences = {}, .of_ranks = communicator_.size(), .hosts = {}};
  for (std::size_t i = 0; i < digests.size(); ++i) {
    Words by_rank;
    for (std::size_t rank = 0; rank < ranks; ++rank) by_rank.push_back(all[rank * digests.size() + i]);
    if (std::ranges::count(by_rank, by_rank.front()) == std::ssize(by_rank)) continue;
    found.differences.push_back({names_[i], minority_of(by_rank)});
  }
  return found;
}

}  // namespace tutti
