#include "bench.hpp"

#include "tutti/storage/whole_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace tutti {
namespace {

// `sorted` is ascending; between two values the nearer one counts by its distance.
double quantile(const std::vector<double>& sorted, double fraction) {
  const double place = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(place));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  return {.low = quantile(values, 0.25), .median = quantile(values, 0.5), .high = quantile(values, 0.75)};
}

std::vector<double> slowest_of_ranks(World& world, std::vector<double> seconds) {
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(seconds)))) {
    std::vector<double> theirs(bytes.size() / sizeof(double));
    std::memcpy(theirs.data(), bytes.data(), bytes.size());
    for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i] = std::max(seconds[i], theirs.at(i));
  }
  return seconds;
}

void write_bench_json(World& world, const std::string& path, const std::string& json) {
  run_agreed(world, [&] {
    if (world.rank() == 0 && !path.empty()) write_whole(path, std::as_bytes(std::span(json)));
  });
}

}  // namespace tutti
