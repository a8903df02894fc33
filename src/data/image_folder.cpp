#include "image_folder.hpp"

#include "tutti/base/error.hpp"

#include "class_counts.hpp"
#include "image_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace tutti {

ImageFolder::ImageFolder(DatasetInfo info, std::string folder, FileNames names, std::span<const std::int32_t> labels,
                         std::uint64_t digest)
    : info_(std::move(info)), folder_(std::move(folder)), names_(names), labels_(labels), digest_(digest) {
  info_.class_samples = count_classes(info_, labels_);
}

std::string ImageFolder::path_of(std::size_t sample) const {
  const std::uint64_t begin = sample == 0 ? 0 : names_.ends[sample - 1];
  const std::string name(names_.letters.begin() + static_cast<std::ptrdiff_t>(begin),
                         names_.letters.begin() + static_cast<std::ptrdiff_t>(names_.ends[sample]));
  return (std::filesystem::path(folder_) / name).string();
}

void ImageFolder::read(std::span<const std::int64_t> samples, SampleBatch& batch) const {
  batch.images.clear();
  batch.labels.clear();
  batch.room.resize(std::max(batch.room.size(), samples.size()));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::size_t sample = info_.index_of(samples[i]);
    const std::string path = path_of(sample);
    const Shape shape = read_image(path, info_.image[0], names_.upright, batch.room[i]);
    if (!info_.sizes_differ() && shape != info_.image) {
      throw Error(ErrorSource::input, fmt::format("the image '{}' is {} now, but was {} when the set was opened", path,
                                                  shape.text(), info_.image.text()));
    }
    batch.images.push_back({batch.room[i].data(), shape});
    batch.labels.push_back(labels_[sample]);
  }
}

}  // namespace tutti
