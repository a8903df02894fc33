#pragma once
// Parts: how a global batch is divided into L fixed parts, and which rank computes which of them. Pure arithmetic.

#include "tutti/base/shape.hpp"

#include <cstdint>
#include <vector>

namespace tutti {

// The positions in a batch of n samples that belong to part `part` of `num_parts`:
// floor(part * n / num_parts) .. floor((part + 1) * n / num_parts) - 1. May be empty.
IndexRange part_positions(std::int64_t n, int num_parts, int part);

// The part map: each rank computes one or more consecutive parts, in the order of the ranks.
class PartMap {
 public:
  // The even map: the first num_parts mod num_ranks ranks have one part more. Throws a usage error that names both
  // numbers if there are more ranks than parts, or if either is less than 1.
  PartMap(int num_parts, int num_ranks);
  // Makes the map from each rank's number of parts. Throws a usage error if a rank has none.
  explicit PartMap(const std::vector<int>& parts_by_rank);
  // Makes the map from the user's list, or the even map if the list is empty. Throws a usage error for a list that does
  // not match.
  static PartMap chosen(const std::vector<int>& parts_by_rank, int num_parts, int num_ranks);

  int num_parts() const noexcept { return ends_.back(); }
  int num_ranks() const noexcept { return static_cast<int>(ends_.size()); }
  IndexRange parts_of(int rank) const;
  int rank_of(int part) const;
  std::vector<int> parts_by_rank() const;
  friend bool operator==(const PartMap&, const PartMap&) = default;

 private:
  std::vector<int> ends_;  // by rank: one past its last part
};

}  // namespace tutti
