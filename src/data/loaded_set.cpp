#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include "sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti {
namespace {

// Returns the chosen rows of `width` elements, and moves the others to the front.
template <class T>
std::vector<T> move_out(std::span<T> rows, std::span<const std::int64_t> chosen, std::size_t width = 1) {
  std::vector<T> taken;
  taken.reserve(chosen.size() * width);
  std::size_t kept = 0;
  for (std::size_t row = 0; row * width < rows.size(); ++row) {
    T* const values = rows.data() + row * width;
    if (!chosen.empty() && std::cmp_equal(chosen.front(), row)) {
      taken.insert(taken.end(), std::move_iterator(values), std::move_iterator(values + width));
      chosen = chosen.subspan(1);
    } else {
      if (kept != row) std::move(values, values + width, rows.data() + kept * width);
      ++kept;
    }
  }
  return taken;
}

template <class T>
std::vector<T> take_rows(std::vector<T>& rows, std::span<const std::int64_t> chosen) {
  std::vector<T> taken = move_out(std::span(rows), chosen);
  rows.resize(rows.size() - taken.size());
  return taken;
}

// Moves the pixels of these images behind the others.
Pixels split(Pixels& pixels, std::span<const std::int64_t> chosen, std::size_t image_bytes) {
  const auto taken = move_out(pixels.bytes(), chosen, image_bytes);
  pixels.size -= taken.size();
  const Pixels behind{pixels.block, pixels.begin + pixels.size, taken.size()};
  std::ranges::copy(taken, behind.bytes().begin());
  return behind;
}

}  // namespace

void Pixels::resize(std::size_t bytes) {
  block->resize(begin + bytes);
  size = bytes;
}

Pixels add_pixels(GrowingMemory& block, std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  Pixels pixels{&block, (block.bytes() + kAlignment - 1) / kAlignment * kAlignment};
  pixels.resize(bytes);
  return pixels;
}

std::string name_of(const LoadedSet& set, std::size_t sample) {
  const auto* files = std::get_if<ImageFiles>(&set.pixels);
  return files != nullptr ? files->files[sample].name : set.names.empty() ? std::string() : set.names[sample];
}

std::string path_of(const LoadedSet& set, std::size_t sample) {
  if (const auto* files = std::get_if<ImageFiles>(&set.pixels)) return files->path_of(sample);
  const auto* encoded = std::get_if<EncodedFiles>(&set.pixels);
  const std::string name = name_of(set, sample);
  return encoded == nullptr ? name : fmt::format("{}:{}", encoded->shards.front().path, name);
}

std::uint64_t digest_of(const LoadedSet& set) {
  if (set.digest) return *set.digest;
  const std::span<const std::int32_t> labels(set.labels);
  const auto* files = std::get_if<ImageFiles>(&set.pixels);
  const auto* encoded = std::get_if<EncodedFiles>(&set.pixels);
  if (files != nullptr || encoded != nullptr) {
    std::vector<std::int64_t> hashes;
    for (std::size_t i = 0; i < set.labels.size(); ++i) {
      const std::int64_t bytes = files != nullptr ? files->files[i].bytes : encoded->bytes[i];
      hashes.push_back(static_cast<std::int64_t>(hash64(name_of(set, i)) ^ mix64(static_cast<std::uint64_t>(bytes))));
    }
    return digest("files", std::span<const std::int64_t>(hashes)) + digest("labels", labels);
  }
  if (const auto* stored = std::get_if<StoredImages>(&set.pixels)) return stored->digest;
  const std::span<const std::uint8_t> images = std::get<Pixels>(set.pixels).bytes();
  return digest("images", images) + digest("labels", labels);
}

LoadedSet extract_samples(LoadedSet& set, std::span<const std::int64_t> chosen) {
  set.label_files.clear();
  LoadedSet taken{set.info, take_rows(set.labels, chosen), {}, {}};
  taken.names = take_rows(set.names, chosen);
  if (auto* files = std::get_if<ImageFiles>(&set.pixels)) {
    taken.pixels = ImageFiles{files->folder, take_rows(files->files, chosen), files->applies_exif};
  } else if (auto* stored = std::get_if<StoredImages>(&set.pixels)) {
    taken.pixels = StoredImages{stored->path, stored->array, take_rows(stored->rows, chosen), stored->digest,
                                take_rows(stored->checksums, chosen)};
  } else if (auto* encoded = std::get_if<EncodedFiles>(&set.pixels)) {
    taken.pixels = EncodedFiles{encoded->shards, take_rows(encoded->begins, chosen), take_rows(encoded->bytes, chosen),
                                take_rows(encoded->checksums, chosen), encoded->applies_exif};
  } else {
    taken.pixels = split(std::get<Pixels>(set.pixels), chosen, static_cast<std::size_t>(set.info.image.elements()));
  }
  return taken;
}

std::vector<std::int64_t> count_classes(const DatasetInfo& info, std::span<const std::int32_t> labels) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(info.classes));
  for (std::size_t sample = 0; sample < labels.size(); ++sample) {
    const std::int32_t label = labels[sample];
    if (label < 0 || label >= info.classes) {
      throw Error(ErrorSource::input, fmt::format("sample {} of {} has label {}, but the classes are 0 .. {}", sample,
                                                  info.name, label, info.classes - 1));
    }
    ++counts[static_cast<std::size_t>(label)];
  }
  return counts;
}

ChannelSums::ChannelSums(const Shape& image)
    : plane_(static_cast<std::size_t>(image[1] * image[2])),
      sums_(static_cast<std::size_t>(image[0])),
      square_sums_(static_cast<std::size_t>(image[0])) {}

void ChannelSums::add(std::span<const std::uint8_t> images) {
  while (!images.empty()) {
    for (std::size_t channel = 0; channel < sums_.size(); ++channel) {
      std::uint64_t sum = 0;
      std::uint64_t squares = 0;
      for (const std::uint32_t pixel : images.first(plane_)) {
        sum += pixel;
        squares += pixel * pixel;
      }
      sums_[channel] += sum;
      square_sums_[channel] += squares;
      images = images.subspan(plane_);
    }
    pixels_ += plane_;
  }
}

void ChannelSums::add(const ChannelSums& others) {
  for (std::size_t channel = 0; channel < sums_.size(); ++channel) {
    sums_[channel] += others.sums_[channel];
    square_sums_[channel] += others.square_sums_[channel];
  }
  pixels_ += others.pixels_;
}

ChannelStatistics ChannelSums::statistics() const {
  using Wide = unsigned __int128;
  ChannelStatistics result;
  const double scale = 255.0 * static_cast<double>(pixels_);
  for (std::size_t channel = 0; channel < sums_.size() && pixels_ > 0; ++channel) {
    const Wide spread = Wide{pixels_} * square_sums_[channel] - Wide{sums_[channel]} * sums_[channel];
    result.mean.push_back(static_cast<double>(sums_[channel]) / scale);
    result.deviation.push_back(std::sqrt(static_cast<double>(spread)) / scale);
  }
  return result;
}

ChannelStatistics statistics_of(std::span<const std::uint8_t> images, const Shape& image) {
  ChannelSums sums(image);
  sums.add(images);
  return sums.statistics();
}

}  // namespace tutti
