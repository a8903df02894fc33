#pragma once
// Parts: how a global batch is cut into L fixed slices, and which rank plays which of them. Pure arithmetic.

#include <cstdint>

namespace tutti {

// Half open: begin .. end - 1.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

// The positions that part `part` of `num_parts` takes of a batch of n samples:
// floor(part * n / num_parts) .. floor((part + 1) * n / num_parts) - 1. Possibly none.
IndexRange part_positions(std::int64_t n, int num_parts, int part);

// The even part map: contiguous, the first num_parts mod num_ranks ranks carry one part more.
class PartPlan {
 public:
  // Throws a usage error that names both numbers when there are more ranks than parts, or less than one of
  // either.
  PartPlan(int num_parts, int num_ranks);

  int num_parts() const noexcept { return num_parts_; }
  int num_ranks() const noexcept { return num_ranks_; }
  IndexRange parts_of(int rank) const;
  int rank_of(int part) const;

 private:
  int num_parts_;
  int num_ranks_;
};

}  // namespace tutti
