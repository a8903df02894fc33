#include "loaded_set.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace tutti {
namespace {

// Moves the chosen rows of `width` elements into the result and closes the gaps.
template <class T>
std::vector<T> take_rows(std::vector<T>& rows, std::span<const std::size_t> chosen, std::size_t width = 1) {
  std::vector<T> taken;
  taken.reserve(chosen.size() * width);
  std::size_t kept = 0;
  for (std::size_t row = 0; row * width < rows.size(); ++row) {
    T* const values = rows.data() + row * width;
    if (!chosen.empty() && chosen.front() == row) {
      taken.insert(taken.end(), std::move_iterator(values), std::move_iterator(values + width));
      chosen = chosen.subspan(1);
    } else {
      if (kept != row) std::move(values, values + width, rows.data() + kept * width);
      ++kept;
    }
  }
  rows.resize(kept * width);
  return taken;
}

std::vector<std::size_t> choose(std::int64_t samples, double ratio, std::uint64_t seed) {
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
  std::vector<std::size_t> chosen(order.begin(), order.begin() + count);
  std::ranges::sort(chosen);
  return chosen;
}

}  // namespace

std::uint64_t digest_of(const LoadedSet& set) {
  if (set.digest) return *set.digest;
  const std::span<const std::int32_t> labels(set.labels);
  if (const auto* files = std::get_if<ImageFiles>(&set.pixels)) return digest_of(*files, labels);
  if (const auto* stored = std::get_if<StoredImages>(&set.pixels)) return stored->digest;
  const std::span<const std::uint8_t> images = std::get<std::vector<std::uint8_t>>(set.pixels);
  return digest("images", images) + digest("labels", labels);
}

LoadedSet take_out(LoadedSet& set, std::span<const std::size_t> chosen) {
  set.label_files.clear();
  LoadedSet taken{set.info, take_rows(set.labels, chosen), {}, {}};
  if (auto* files = std::get_if<ImageFiles>(&set.pixels)) {
    taken.pixels =
        ImageFiles{files->folder, take_rows(files->names, chosen), take_rows(files->bytes, chosen), files->upright};
  } else if (auto* stored = std::get_if<StoredImages>(&set.pixels)) {
    taken.pixels = StoredImages{stored->path, stored->array, take_rows(stored->rows, chosen), stored->digest,
                                take_rows(stored->checksums, chosen)};
  } else {
    auto& images = std::get<std::vector<std::uint8_t>>(set.pixels);
    taken.pixels = take_rows(images, chosen, static_cast<std::size_t>(set.info.image.elements()));
  }
  return taken;
}

LoadedSet hold_out(LoadedSet& set, double ratio, std::uint64_t seed) {
  const std::uint64_t whole = digest_of(set);
  const auto chosen = choose(static_cast<std::int64_t>(set.labels.size()), ratio, seed);
  const std::vector<std::int64_t> rows(chosen.begin(), chosen.end());
  LoadedSet held = take_out(set, chosen);
  held.info.name += " (validation)";
  held.digest = whole + digest("held out", std::span(rows));
  set.digest = whole + digest("left", std::span(rows));
  held.info.skipped.clear();
  for (SkippedImage& skipped : set.info.skipped) {
    skipped.before -= std::ranges::lower_bound(rows, skipped.before) - rows.begin();
  }
  return held;
}

}  // namespace tutti
