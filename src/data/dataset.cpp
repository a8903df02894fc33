#include "tutti/data/dataset.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tutti {

MemoryDataset::MemoryDataset(DatasetInfo info, std::span<const std::uint8_t> images,
                             std::span<const std::int32_t> labels)
    : info_(std::move(info)), images_(images), labels_(labels) {
  const Shape all = info_.image.batch_of(info_.samples);
  if (static_cast<std::int64_t>(images_.size()) != all.elements() ||
      static_cast<std::int64_t>(labels_.size()) != info_.samples) {
    throw Error(ErrorSource::internal, fmt::format("the data set {} of shape {} is given {} pixels and {} labels",
                                                   info_.name, all.text(), images_.size(), labels_.size()));
  }
  const auto wrong = std::ranges::find_if(
      labels_, [this](std::int32_t label) { return label < 0 || label >= info_.classes; });
  if (wrong != labels_.end()) {
    throw Error(ErrorSource::input, fmt::format("sample {} of {} has label {}, but the classes are 0 .. {}",
                                                wrong - labels_.begin(), info_.name, *wrong, info_.classes - 1));
  }
}

void MemoryDataset::read(std::span<const std::int64_t> samples, SampleBatch& batch) const {
  const auto image_bytes = static_cast<std::size_t>(info_.image.elements());
  batch.images.clear();
  batch.labels.clear();
  for (const std::int64_t sample : samples) {
    if (sample < 0 || sample >= info_.samples) {
      throw Error(ErrorSource::internal, fmt::format("sample {} of {}, which has {}", sample, info_.name, info_.samples));
    }
    const auto index = static_cast<std::size_t>(sample);
    batch.images.push_back({images_.data() + index * image_bytes, info_.image});
    batch.labels.push_back(labels_[index]);
  }
}

std::uint64_t MemoryDataset::digest() const { return tutti::digest("images", images_) + tutti::digest("labels", labels_); }

}  // namespace tutti
