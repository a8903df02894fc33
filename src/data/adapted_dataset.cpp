#include "tutti/data/adapted_dataset.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tutti {
namespace {

constexpr std::int64_t kColor = 3;

void write_gray(const ImageView& color, std::span<std::uint8_t> gray) {
  const std::size_t plane = gray.size();
  const std::uint8_t* const red = color.pixels;
  const std::uint8_t* const green = red + plane;
  const std::uint8_t* const blue = green + plane;
  for (std::size_t i = 0; i < plane; ++i) {
    gray[i] = static_cast<std::uint8_t>((299 * red[i] + 587 * green[i] + 114 * blue[i] + 500) / 1000);
  }
}

void write_color(const ImageView& gray, std::span<std::uint8_t> color) {
  const std::size_t plane = color.size() / static_cast<std::size_t>(kColor);
  for (std::size_t i = 0; i < color.size(); ++i) color[i] = gray.pixels[i % plane];
}

// The network's label for each of the data's labels; empty if one of the two has no class names.
std::vector<std::int32_t> network_labels(const DatasetInfo& data, const TrainedOn& network) {
  std::vector<std::int32_t> labels;
  if (network.class_names.empty()) return labels;
  for (const std::string& name : data.class_names) {
    labels.push_back(
        static_cast<std::int32_t>(std::ranges::find(network.class_names, name) - network.class_names.begin()));
  }
  return labels;
}

class AdaptedDataset final : public Dataset {
 public:
  // `label_of` maps the data's labels; empty: they are unchanged.
  AdaptedDataset(const TrainedOn& network, std::unique_ptr<Dataset> data, std::vector<std::int32_t> label_of,
                 bool keeps_labels)
      : data_(std::move(data)), info_(data_->info()), label_of_(std::move(label_of)) {
    info_.labelled &= keeps_labels;
    info_.image = Shape{network.image[0], info_.image[1], info_.image[2]};
    const bool same_count = info_.classes == network.classes && network.class_names.empty();
    if (!same_count) info_.class_names = network.class_names;
    info_.classes = network.classes;
    info_.statistics = {};
    info_.class_samples.clear();
  }

  const DatasetInfo& info() const override { return info_; }
  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override {
    data_->read(samples, batch);
    if (!label_of_.empty()) {
      for (std::int32_t& label : batch.labels) label = label_of_[static_cast<std::size_t>(label)];
    }
    if (info_.image[0] == data_->info().image[0]) return;
    const std::size_t used = samples.size();  // buffers that the inner data set uses, at most
    batch.buffers.resize(std::max(batch.buffers.size(), 2 * used));
    for (std::size_t i = 0; i < used; ++i) recolor(batch.images[i], batch.buffers[used + i]);
  }
  std::string name_of(std::int64_t sample) const override { return data_->name_of(sample); }
  std::string file_of(std::int64_t sample) const override { return data_->file_of(sample); }
  std::size_t resident_bytes() const override { return data_->resident_bytes(); }
  std::uint64_t digest() const override { return data_->digest(); }

 private:
  void recolor(ImageView& image, std::vector<std::uint8_t>& pixels) const {
    const Shape shape{info_.image[0], image.shape[1], image.shape[2]};
    pixels.resize(static_cast<std::size_t>(shape.elements()));
    if (shape[0] == 1) {
      write_gray(image, pixels);
    } else {
      write_color(image, pixels);
    }
    image = {pixels.data(), shape};
  }

  std::unique_ptr<Dataset> data_;
  DatasetInfo info_;
  std::vector<std::int32_t> label_of_;
};

}  // namespace

std::string label_mismatch(const DatasetInfo& data, const TrainedOn& network) {
  if (!data.labelled) return {};
  if (data.class_names.empty() || network.class_names.empty()) {
    if (data.classes <= network.classes) return {};
    return fmt::format("{} has {} classes, and the network has {}", data.name, data.classes, network.classes);
  }
  const auto unknown = std::ranges::find_if(data.class_names, [&](const std::string& name) {
    return std::ranges::find(network.class_names, name) == network.class_names.end();
  });
  if (unknown == data.class_names.end()) return {};
  return fmt::format("{} has the class '{}', which the network does not have", data.name, *unknown);
}

std::unique_ptr<Dataset> adapt_to(const TrainedOn& network, std::unique_ptr<Dataset> data,
                                  std::vector<std::string>& notes) {
  const DatasetInfo& info = data->info();
  const std::int64_t found = info.image[0];
  const std::int64_t wanted = network.image[0];
  const bool same_channels = found == wanted;
  if (!same_channels && !(found == 1 && wanted == kColor) && !(found == kColor && wanted == 1)) {
    throw Error(ErrorSource::input,
                fmt::format("the images of {} have {} channels, and the network takes {}: only gray (1) and color (3) "
                            "can be converted into each other",
                            info.name, found, wanted));
  }
  const std::string fault = label_mismatch(info, network);
  const bool same_classes =
      info.classes == network.classes && (network.class_names.empty() || info.class_names == network.class_names);
  if (fault.empty() && same_channels && same_classes) return data;
  if (!fault.empty()) notes.push_back(fmt::format("labels are ignored: {}", fault));
  if (!same_channels) {
    notes.push_back(found == 1 ? fmt::format("{}: gray, converted to color for the network", info.name)
                               : fmt::format("{}: in color, converted to gray for the network", info.name));
  }
  auto labels = fault.empty() ? network_labels(info, network)
                              : std::vector<std::int32_t>(static_cast<std::size_t>(info.classes), 0);
  return std::make_unique<AdaptedDataset>(network, std::move(data), std::move(labels), fault.empty());
}

}  // namespace tutti
