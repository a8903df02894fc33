#include "tutti/data/part_plan.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

// floor(part * n / num_parts), in an order that cannot overflow.
std::int64_t first_position(std::int64_t n, int num_parts, std::int64_t part) {
  return part * (n / num_parts) + part * (n % num_parts) / num_parts;
}

}  // namespace

IndexRange part_positions(std::int64_t n, int num_parts, int part) {
  return {first_position(n, num_parts, part), first_position(n, num_parts, std::int64_t{part} + 1)};
}

PartPlan::PartPlan(int num_parts, int num_ranks) : num_parts_(num_parts), num_ranks_(num_ranks) {
  if (num_parts < 1 || num_ranks < 1) {
    throw Error(ErrorSource::usage,
                fmt::format("there are {} parts for {} ranks; give at least one of each", num_parts, num_ranks));
  }
  if (num_ranks > num_parts) {
    throw Error(ErrorSource::usage, fmt::format("{0} ranks cannot share {1} parts: start at most {1} ranks, or begin "
                                                "a new run with --parts {0} or more",
                                                num_ranks, num_parts));
  }
}

IndexRange PartPlan::parts_of(int rank) const {
  if (rank < 0 || rank >= num_ranks_) {
    throw Error(ErrorSource::internal, fmt::format("parts of rank {} of {}", rank, num_ranks_));
  }
  const int least = num_parts_ / num_ranks_;
  const int ranks_with_one_more = num_parts_ % num_ranks_;
  const int begin = rank * least + std::min(rank, ranks_with_one_more);
  return {begin, begin + least + (rank < ranks_with_one_more ? 1 : 0)};
}

int PartPlan::rank_of(int part) const {
  if (part < 0 || part >= num_parts_) {
    throw Error(ErrorSource::internal, fmt::format("rank of part {} of {}", part, num_parts_));
  }
  const int least = num_parts_ / num_ranks_;
  const int ranks_with_one_more = num_parts_ % num_ranks_;
  const int parts_before_even_ranks = ranks_with_one_more * (least + 1);
  if (part < parts_before_even_ranks) return part / (least + 1);
  return ranks_with_one_more + (part - parts_before_even_ranks) / least;
}

}  // namespace tutti
