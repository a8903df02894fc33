#include "link_fit.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tutti {
namespace {

// Seconds of a sum by the latency, and by the seconds of a byte.
struct Weights {
  double latency = 0;
  double byte = 0;
};

Weights weights_of(double bytes, int ranks) {
  const double messages = 2.0 * (ranks - 1);
  return {.latency = messages, .byte = messages * bytes / ranks};
}

}  // namespace

Link fit_link(const std::vector<TimedSum>& sums, int ranks) {
  // Least squares of fitted / measured - 1.
  double ll = 0, lb = 0, bb = 0, l = 0, b = 0;
  for (const TimedSum& sum : sums) {
    Weights weights = weights_of(static_cast<double>(sum.bytes), ranks);
    weights = {.latency = weights.latency / sum.seconds, .byte = weights.byte / sum.seconds};
    ll += weights.latency * weights.latency;
    lb += weights.latency * weights.byte;
    bb += weights.byte * weights.byte;
    l += weights.latency;
    b += weights.byte;
  }
  const double determinant = ll * bb - lb * lb;
  double latency = (l * bb - b * lb) / determinant;
  double byte = (b * ll - l * lb) / determinant;
  if (latency < 0) {
    latency = 0;
    byte = b / bb;
  }
  if (ranks < 2 || sums.size() < 2 || !std::isfinite(latency) || !(byte > 0) || !std::isfinite(1 / byte)) {
    throw Error(ErrorSource::input,
                fmt::format("{} sums over {} ranks do not tell a link's latency and speed: measure two sizes or more "
                            "that take longer the larger they are",
                            sums.size(), ranks));
  }
  return {.latency = latency, .bytes_per_second = 1 / byte};
}

double all_reduce_seconds(const Link& link, std::int64_t bytes, int ranks) {
  const Weights weights = weights_of(static_cast<double>(bytes), ranks);
  return weights.latency * link.latency + weights.byte / link.bytes_per_second;
}

}  // namespace tutti
