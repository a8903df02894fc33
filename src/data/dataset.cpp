#include "tutti/data/dataset.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"

#include "sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

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

ImageFile Dataset::image_file(std::int64_t sample, std::vector<std::byte>& /*buffer*/) const {
  throw Error(ErrorSource::internal, fmt::format("sample {} of {} is no image file", sample, info().name));
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

std::vector<double> class_weights(const std::string& text, const Dataset& data) {
  if (text == "none") return {};
  const auto labels = data.labels();
  if (labels.empty()) {
    throw Error(ErrorSource::usage, fmt::format("--class-weights {}: the data set {} does not know its labels without "
                                                "reading its images: leave the option out",
                                                text, data.info().name));
  }
  const std::vector<std::int64_t> samples = count_classes(data.info(), labels);
  std::vector<double> weights;
  if (text == "auto") {
    std::ranges::transform(samples, std::back_inserter(weights),
                           [](std::int64_t n) { return n > 0 ? 1.0 / static_cast<double>(n) : 0; });
  } else {
    weights = parse_numbers<double>(text);
    if (!std::ranges::all_of(weights, [](double w) { return w >= 0 && std::isfinite(w); })) weights.clear();
  }
  double sum = 0;
  for (std::size_t i = 0; i < weights.size() && weights.size() == samples.size(); ++i) {
    sum += static_cast<double>(samples[i]) * weights[i];
  }
  if (!(sum > 0) || !std::isfinite(sum)) {
    throw Error(ErrorSource::usage, fmt::format("--class-weights {}: give none, auto, or {} weights of 0 or more, one "
                                                "for each class of {}, separated by commas",
                                                text, samples.size(), data.info().name));
  }
  for (double& weight : weights) weight *= static_cast<double>(labels.size()) / sum;
  return weights;
}

}  // namespace tutti
