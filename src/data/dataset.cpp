#include "tutti/data/dataset.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include "sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti {

std::size_t DatasetInfo::index_of(std::int64_t sample) const {
  if (sample >= 0 && sample < samples) return static_cast<std::size_t>(sample);
  throw Error(ErrorSource::internal, fmt::format("sample {} of {}, which has {}", sample, name, samples));
}

std::int64_t DatasetInfo::samples_at_once() const {
  constexpr std::int64_t kBytes = std::int64_t{4} << 20;
  return sizes_differ() ? 1 : std::max<std::int64_t>(1, kBytes / image.elements());
}

std::string PackedNames::of(std::size_t sample) const {
  if (ends.empty()) return {};
  const std::uint64_t begin = sample == 0 ? 0 : ends[sample - 1];
  const auto name = letters.subspan(begin, ends[sample] - begin);
  return {name.begin(), name.end()};
}

MemoryDataset::MemoryDataset(DatasetInfo info, std::span<const std::uint8_t> images,
                             std::span<const std::int32_t> labels, std::optional<std::uint64_t> known_digest,
                             PackedNames names)
    : info_(std::move(info)), images_(images), labels_(labels), known_digest_(known_digest), names_(names) {
  const Shape all = info_.image.batch_of(info_.samples);
  if (static_cast<std::int64_t>(images_.size()) != all.elements() ||
      static_cast<std::int64_t>(labels_.size()) != info_.samples) {
    throw Error(ErrorSource::internal, fmt::format("the data set {} of shape {} has {} pixels and {} labels",
                                                   info_.name, all.text(), images_.size(), labels_.size()));
  }
  info_.class_samples = count_classes(info_, labels_);
}

void MemoryDataset::read(std::span<const std::int64_t> samples, SampleBatch& batch) const {
  const auto image_bytes = static_cast<std::size_t>(info_.image.elements());
  batch.images.clear();
  batch.labels.clear();
  for (const std::int64_t sample : samples) {
    const std::size_t index = info_.index_of(sample);
    batch.images.push_back({images_.data() + index * image_bytes, info_.image});
    batch.labels.push_back(labels_[index]);
  }
}

std::uint64_t MemoryDataset::digest() const {
  return known_digest_ ? *known_digest_ : tutti::digest("images", images_) + tutti::digest("labels", labels_);
}

}  // namespace tutti
