#include "tutti/data/dataset.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tutti {

MemoryDataset::MemoryDataset(DatasetInfo info, std::vector<std::uint8_t> images, std::vector<std::int32_t> labels)
    : info_(std::move(info)), images_(std::move(images)), labels_(std::move(labels)) {
  const Shape all = info_.image.batch_of(info_.samples);
  if (static_cast<std::int64_t>(images_.size()) != all.elements() ||
      static_cast<std::int64_t>(labels_.size()) != info_.samples) {
    throw Error(ErrorSource::internal, fmt::format("the data set {} of shape {} is given {} pixels and {} labels",
                                                   info_.name, all.text(), images_.size(), labels_.size()));
  }
  const auto wrong = std::find_if(labels_.begin(), labels_.end(),
                                  [this](std::int32_t label) { return label < 0 || label >= info_.classes; });
  if (wrong != labels_.end()) {
    throw Error(ErrorSource::input, fmt::format("sample {} of {} has label {}, but the classes are 0 .. {}",
                                                wrong - labels_.begin(), info_.name, *wrong, info_.classes - 1));
  }
}

void MemoryDataset::read(std::span<const std::int64_t> samples, std::span<std::uint8_t> images,
                         std::span<std::int32_t> labels) const {
  const auto image_bytes = static_cast<std::size_t>(info_.image.elements());
  if (images.size() != samples.size() * image_bytes || labels.size() != samples.size()) {
    throw Error(ErrorSource::internal, fmt::format("{} samples of {} are read into room for {} bytes and {} labels",
                                                   samples.size(), info_.name, images.size(), labels.size()));
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i] < 0 || samples[i] >= info_.samples) {
      throw Error(ErrorSource::internal,
                  fmt::format("sample {} of {}, which has {}", samples[i], info_.name, info_.samples));
    }
    const auto sample = static_cast<std::size_t>(samples[i]);
    std::copy_n(images_.data() + sample * image_bytes, image_bytes, images.data() + i * image_bytes);
    labels[i] = labels_[sample];
  }
}

std::uint64_t MemoryDataset::digest() const {
  return tutti::digest("images", std::span(images_)) + tutti::digest("labels", std::span(labels_));
}

}  // namespace tutti
