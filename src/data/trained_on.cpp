#include "tutti/data/trained_on.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <utility>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

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

Json json_of(const std::optional<FileContents>& files) {
  if (!files) return nullptr;
  Json json{{"sampled", files->sampled_files}, {"sample", digest_text(files->sample_digest)}};
  if (files->whole) json["whole"] = digest_text(*files->whole);
  return json;
}

std::uint64_t digest_in(const Json& json) { return std::stoull(json.get<std::string>(), nullptr, 16); }

std::optional<FileContents> files_in(const Json& json) {
  if (json.is_null()) return std::nullopt;
  FileContents files{.sampled_files = json.at("sampled").get<std::int64_t>(),
                     .sample_digest = digest_in(json.at("sample"))};
  if (json.contains("whole")) files.whole = digest_in(json.at("whole"));
  return files;
}

Error damaged(const LoadedCheckpoint& loaded, const std::string& what) {
  return Error(ErrorSource::checkpoint, fmt::format("'{}': /run/data is damaged: {}", loaded.path, what));
}

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

DataDigests digests_of(const DataPair& data) {
  DataDigests digests{.train = data.train->digest(), .train_files = data.train->info().contents};
  if (data.test) {
    digests.test = data.test->digest();
    digests.test_files = data.test->info().contents;
  }
  return digests;
}

std::string trained_on_text(const TrainedOn& data, const DataDigests& digests) {
  const auto image = data.image.extents();
  const bool names_fit = std::ranges::all_of(data.class_names, is_utf8);  // JSON allows nothing else
  return Json{{"image", std::vector<std::int64_t>(image.begin(), image.end())},
              {"keeps_short_side", data.keeps_short_side},
              {"classes", data.classes},
              {"class_names", names_fit ? data.class_names : std::vector<std::string>{}},
              {"test_digest", digests.test ? Json(digest_text(*digests.test)) : Json()},
              {"train_files", json_of(digests.train_files)},
              {"test_files", json_of(digests.test_files)}}
      .dump();
}

std::optional<TrainedOn> trained_on(const LoadedCheckpoint& loaded) {
  if (loaded.state.data.empty()) return std::nullopt;
  try {
    const Json json = Json::parse(loaded.state.data);
    const auto image = json.at("image").get<std::vector<std::int64_t>>();
    TrainedOn found{.image = Shape(image),
                    .classes = json.at("classes").get<int>(),
                    .class_names = json.at("class_names").get<std::vector<std::string>>(),
                    .keeps_short_side = json.value("keeps_short_side", false)};
    const bool has_image = image.size() == 3 && std::ranges::all_of(image, [](std::int64_t n) { return n > 0; });
    const bool names_all = found.class_names.empty() || std::ssize(found.class_names) == found.classes;
    if (has_image && found.classes >= 1 && names_all) return found;
    throw Error(ErrorSource::checkpoint, fmt::format("an image of {} extents, {} classes and {} class names",
                                                     image.size(), found.classes, found.class_names.size()));
  } catch (const std::exception& error) {
    throw damaged(loaded, error.what());
  }
}

std::optional<DataDigests> stored_digests(const LoadedCheckpoint& loaded) {
  const Json json = Json::parse(loaded.state.data, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("test_digest")) return std::nullopt;
  try {
    DataDigests digests{.train = loaded.state.data_digest,
                        .train_files = files_in(json.at("train_files")),
                        .test_files = files_in(json.at("test_files"))};
    if (!json.at("test_digest").is_null()) digests.test = digest_in(json.at("test_digest"));
    return digests;
  } catch (const std::exception& error) {
    throw damaged(loaded, error.what());
  }
}

}  // namespace tutti
