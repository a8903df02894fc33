#include "tutti/data/part_map.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace tutti {
namespace {

// floor(part * n / num_parts), in an order that cannot overflow.
std::int64_t first_position(std::int64_t n, int num_parts, std::int64_t part) {
  return part * (n / num_parts) + part * (n % num_parts) / num_parts;
}

std::vector<int> divide_evenly(int num_parts, int num_ranks) {
  if (num_ranks < 1 || num_ranks > num_parts) {
    throw Error(ErrorSource::usage,
                fmt::format("there are {} parts for {} ranks: give at least one part for each rank, "
                            "and at least one rank",
                            num_parts, num_ranks));
  }
  std::vector<int> parts_by_rank(static_cast<std::size_t>(num_ranks), num_parts / num_ranks);
  std::fill_n(parts_by_rank.begin(), num_parts % num_ranks, num_parts / num_ranks + 1);
  return parts_by_rank;
}

}  // namespace

IndexRange part_positions(std::int64_t n, int num_parts, int part) {
  return {first_position(n, num_parts, part), first_position(n, num_parts, std::int64_t{part} + 1)};
}

PartMap::PartMap(int num_parts, int num_ranks) : PartMap(divide_evenly(num_parts, num_ranks)) {}

PartMap::PartMap(const std::vector<int>& parts_by_rank) {
  if (parts_by_rank.empty())
    throw Error(ErrorSource::usage, "empty part map: give each rank's number of parts, for example 3,3,2");
  for (std::size_t rank = 0; rank < parts_by_rank.size(); ++rank) {
    if (parts_by_rank[rank] < 1) {
      throw Error(ErrorSource::usage,
                  fmt::format("rank {} has {} parts: every rank must compute at least one", rank, parts_by_rank[rank]));
    }
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + parts_by_rank[rank]);
  }
}

PartMap PartMap::chosen(const std::vector<int>& parts_by_rank, int num_parts, int num_ranks) {
  if (parts_by_rank.empty()) return {num_parts, num_ranks};
  PartMap map(parts_by_rank);
  if (map.num_parts() == num_parts && map.num_ranks() == num_ranks) return map;
  throw Error(
      ErrorSource::usage,
      fmt::format("--part-map {} assigns {} parts to {} ranks, but there are {} parts and {} ranks: correct the "
                  "list, or use even",
                  fmt::join(parts_by_rank, ","), map.num_parts(), map.num_ranks(), num_parts, num_ranks));
}

IndexRange PartMap::parts_of(int rank) const {
  if (rank < 0 || rank >= num_ranks()) {
    throw Error(ErrorSource::internal, fmt::format("parts of rank {} of {}", rank, num_ranks()));
  }
  const auto at = static_cast<std::size_t>(rank);
  return {at == 0 ? 0 : ends_[at - 1], ends_[at]};
}

int PartMap::rank_of(int part) const {
  if (part < 0 || part >= num_parts()) {
    throw Error(ErrorSource::internal, fmt::format("rank of part {} of {}", part, num_parts()));
  }
  return static_cast<int>(std::ranges::upper_bound(ends_, part) - ends_.begin());
}

std::vector<int> PartMap::parts_by_rank() const {
  std::vector<int> counts(ends_.size());
  std::adjacent_difference(ends_.begin(), ends_.end(), counts.begin());
  return counts;
}

}  // namespace tutti
