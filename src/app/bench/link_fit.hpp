#pragma once
// What a link between ranks does, from sums of several sizes over it.

#include <cstdint>
#include <vector>

namespace tutti {

// A message of n bytes is at the other end after latency + n / bytes_per_second.
struct Link {
  double latency = 0;
  double bytes_per_second = 0;
};

struct TimedSum {
  std::int64_t bytes = 0;
  double seconds = 0;
};

// From all-reduces of f32 over so many ranks that are alike, in a ring; two sizes at least. What all_reduce_seconds()
// of it gives comes closest to the measured, in proportion to each. Throws an input error when nothing fits.
Link fit_link(const std::vector<TimedSum>& sums, int ranks);

// 2 (P - 1) messages one after the other, of bytes / P each.
double all_reduce_seconds(const Link& link, std::int64_t bytes, int ranks);

}  // namespace tutti
