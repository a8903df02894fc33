#include "loaded_set.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"

#include "channel_sums.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace tutti {
namespace {

// Moves the chosen rows of `width` elements into the result and closes the gaps; `chosen` is ascending.
template <class T>
std::vector<T> take_rows(std::vector<T>& rows, std::span<const std::int64_t> chosen, std::size_t width) {
  std::vector<T> taken;
  taken.reserve(chosen.size() * width);
  auto kept = rows.begin();
  auto next = chosen.begin();
  for (auto row = rows.begin(); row != rows.end(); row += static_cast<std::ptrdiff_t>(width)) {
    const auto end = row + static_cast<std::ptrdiff_t>(width);
    const bool is_chosen = next != chosen.end() && *next == (row - rows.begin()) / static_cast<std::ptrdiff_t>(width);
    if (is_chosen) {
      taken.insert(taken.end(), std::move_iterator(row), std::move_iterator(end));
      ++next;
    } else {
      kept = std::move(row, end, kept);
    }
  }
  rows.erase(kept, rows.end());
  return taken;
}

std::vector<std::int64_t> choose(std::int64_t samples, double ratio, std::uint64_t seed) {
  const auto count = std::max<std::int64_t>(1, std::llround(ratio * static_cast<double>(samples)));
  if (count >= samples) {
    throw Error(ErrorSource::usage, fmt::format("--validation-ratio {} holds out {} of {} samples: nothing is left to "
                                                "train on; give a smaller one",
                                                ratio, count, samples));
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), 0);
  RandomSequence random(seed, {.purpose = random_purpose("validation")});
  shuffle(order, random);
  order.resize(static_cast<std::size_t>(count));
  std::ranges::sort(order);
  return order;
}

}  // namespace

LoadedSet hold_out(LoadedSet& set, double ratio, std::uint64_t seed) {
  const auto chosen = choose(static_cast<std::int64_t>(set.labels.size()), ratio, seed);
  LoadedSet held{set.info, take_rows(set.labels, chosen, 1), {}};
  held.info.name += " (validation)";
  auto& pixels = std::get<std::vector<std::uint8_t>>(set.pixels);
  held.pixels = take_rows(pixels, chosen, static_cast<std::size_t>(set.info.image.elements()));
  return held;
}

}  // namespace tutti
