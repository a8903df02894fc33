#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/data/data_file.hpp"
#include "tutti/data/image_recipe.hpp"

#include "data_file_content.hpp"
#include "encoded_file.hpp"
#include "image_codec.hpp"
#include "image_tars.hpp"
#include "ordered_work.hpp"
#include "partial_file.hpp"
#include "pixel_writer.hpp"
#include "sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Threads prepare blocks of images: each file is read, decoded once to be sure that it can be, and resized if it is to
// be. They are appended in the order of the source.

namespace tutti {
namespace {

constexpr std::int64_t kImagesPerBlock = 16;
constexpr std::int64_t kBytesPerBlock = std::int64_t{8} << 20;
constexpr double kSecondsBetweenCheckpoints = 5;

struct Prepared {
  EncodedEntry entry{};
  std::string class_name{};  // of an archive's image, instead of the label
  std::string problem{};     // why it is left out
  ConversionPoint next{};    // of the image after it
};
using Block = std::vector<Prepared>;

// The size to which an image is resized; empty: it stays as it is.
std::optional<Shape> resized_shape(const Shape& image, const EncodedOptions& options) {
  const std::int64_t side = std::max(options.short_side, options.long_side);
  const auto [shorter, longer] = std::minmax({image[1], image[2]});
  const std::int64_t from = options.short_side > 0 ? shorter : longer;
  if (side == 0 || from <= side) return std::nullopt;
  const auto to = [&](std::int64_t length) { return std::max<std::int64_t>(1, length * side / from); };
  return Shape{image[0], to(image[1]), to(image[2])};
}

std::vector<std::uint8_t> resize(const ImageView& image, const Shape& shape) {
  const auto axis = [&](int i) {
    return AxisPlan{
        .input = image.shape[i], .resized = shape[i], .kept = {0, shape[i]}, .crop = {0, shape[i]}, .output = shape[i]};
  };
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));  // 0 to 1
  PixelWriter(ImageRecipe{.augment = {}, .image = shape, .statistics = {}}).write(image, {axis(1), axis(2)}, values);
  std::vector<std::uint8_t> pixels;
  std::ranges::transform(values, std::back_inserter(pixels), byte_of);
  return pixels;
}

void add_means(const ImageView& image, EncodedEntry& entry) {
  ChannelSums sums(image.shape);
  sums.add({image.pixels, static_cast<std::size_t>(image.shape.elements())});
  for (std::size_t c = 0; c < static_cast<std::size_t>(image.shape[0]); ++c) {
    entry.means[c] = sums.mean(c);
    entry.squares[c] = sums.mean_square(c);
  }
}

// Fills all but name and label.
void prepare(const ImageFile& file, const EncodedOptions& options, EncodedEntry& entry) {
  const auto bytes = std::as_bytes(file.bytes);
  const ImageFile stored{file.bytes, file.name, /*applies_exif=*/false};
  Shape shape = image_shape(stored);
  int orientation = exif_orientation(file.bytes);
  std::vector<std::uint8_t> pixels;
  ImageView image{nullptr, decode_image(file, shape[0], pixels)};
  const auto smaller = resized_shape(image.shape, options);
  if (smaller) {
    pixels = resize({pixels.data(), image.shape}, *smaller);
    image.shape = shape = *smaller;
    orientation = 1;
    entry.encoded_again = true;
  }
  image.pixels = pixels.data();
  if (!smaller) {
    entry.bytes.assign(bytes.begin(), bytes.end());
  } else {
    entry.bytes = is_jpeg(file.bytes) ? encode_jpeg(image, options.quality) : encode_png(image);
  }
  add_means(image, entry);
  for (std::size_t i = 0; i < 3; ++i) entry.shape[i] = static_cast<std::int32_t>(shape[static_cast<int>(i)]);
  entry.shape[3] = orientation;
}

// Why an image is bad, if `prepare` throws that; else empty. Failures of files or memory may pass, so they end the
// conversion.
std::string problem_of(const std::function<void()>& prepare) {
  try {
    prepare();
  } catch (const Error& error) {
    if (error.source() != ErrorSource::input) throw;
    return error.what();
  }
  return {};
}

class Source {
 public:
  virtual ~Source() = default;
  virtual nlohmann::json identity() const = 0;
  virtual DatasetInfo info() const = 0;                   // name and, unless images name their classes, classes
  virtual std::int64_t samples() const = 0;               // of both sets; 0: not known
  virtual std::optional<std::int64_t> bytes() const = 0;  // of the image files, if known
  virtual bool has(std::size_t set) const = 0;
  virtual void seek(const ConversionPoint& point) = 0;
  // The work that prepares the next images of the point's set; empty at its end.
  virtual std::function<Block()> next() = 0;
};

// Files of their own, or in a data file.
class ListedSource final : public Source {
 public:
  ListedSource(OwnedData data, const EncodedOptions& options) : data_(std::move(data)), options_(options) {
    for (const auto* const set : {data_.pair.train.get(), data_.pair.test.get()}) {
      if (set != nullptr && !set->is_encoded()) {
        throw Error(ErrorSource::usage,
                    fmt::format("--encoded keeps image files, and {} has none: leave it out", set->info().name));
      }
    }
  }

  nlohmann::json identity() const override {
    nlohmann::json sets;
    for (std::size_t i = 0; i < 2 && has(i); ++i) {
      const Dataset& data = set(i);
      sets.push_back({data.info().samples, data.digest(), data.info().listing->modified});
    }
    return sets;
  }
  DatasetInfo info() const override { return data_.pair.train->info(); }
  std::int64_t samples() const override {
    return data_.pair.train->info().samples + (has(1) ? data_.pair.test->info().samples : 0);
  }
  std::optional<std::int64_t> bytes() const override {
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < 2 && has(i); ++i) bytes += set(i).info().listing->bytes;
    return bytes;
  }
  bool has(std::size_t index) const override { return index == 0 || data_.pair.test != nullptr; }
  void seek(const ConversionPoint& point) override { point_ = point; }

  std::function<Block()> next() override {
    const Dataset& data = set(point_.set);
    const std::int64_t first = point_.at;
    if (first == data.info().samples) return {};
    const std::int64_t mean_bytes = data.info().listing->bytes / data.info().samples + 1;
    const std::int64_t most = std::clamp<std::int64_t>(kBytesPerBlock / mean_bytes, 1, kImagesPerBlock);
    const std::int64_t count = std::min(most, data.info().samples - first);
    point_.at += count;
    return [this, &data, first, count, set = point_.set] {
      Block block;
      std::vector<std::byte> buffer;
      for (std::int64_t sample = first; sample < first + count; ++sample) {
        Prepared& image = block.emplace_back();
        image.next = {set, sample + 1, 0};
        image.entry.name = data.name_of(sample);
        image.entry.label = data.labels()[static_cast<std::size_t>(sample)];
        image.problem = problem_of([&] {
          ImageFile file = data.image_file(sample, buffer);
          file.remedy.clear();  // that of all problems is added later
          prepare(file, options_, image.entry);
        });
      }
      return block;
    };
  }

 private:
  const Dataset& set(std::size_t index) const { return index == 0 ? *data_.pair.train : *data_.pair.test; }

  OwnedData data_;
  const EncodedOptions& options_;
  ConversionPoint point_;
};

class TarSource final : public Source {
 public:
  TarSource(TarSets sets, const EncodedOptions& options, bool applies_exif)
      : sets_(std::move(sets)), options_(options), applies_exif_(applies_exif) {}

  nlohmann::json identity() const override {
    nlohmann::json files;
    for (const auto* const paths : {&sets_.train, &sets_.test}) {
      nlohmann::json& set = files.emplace_back(nlohmann::json::array());
      for (const std::string& path : *paths) {
        const auto file = file_at(path, std::filesystem::path(path).filename().string());
        set.push_back({printable(file.name), file.bytes, file.modified});
      }
    }
    return files;
  }
  DatasetInfo info() const override { return {.name = sets_.name, .image = {}}; }
  std::int64_t samples() const override { return 0; }
  std::optional<std::int64_t> bytes() const override { return std::nullopt; }
  bool has(std::size_t index) const override { return index == 0 || !sets_.test.empty(); }
  void seek(const ConversionPoint& point) override {
    set_ = point.set;
    reader_.emplace(set_ == 0 ? sets_.train : sets_.test, TarPosition{point.at, point.byte});
  }

  std::function<Block()> next() override {
    const auto samples = std::make_shared<std::vector<std::pair<TarSample, ConversionPoint>>>();
    std::int64_t bytes = 0;
    while (std::ssize(*samples) < kImagesPerBlock && bytes < kBytesPerBlock) {
      auto sample = reader_->next();
      if (!sample) break;
      bytes += std::ssize(sample->bytes);
      const TarPosition next = reader_->position();
      samples->emplace_back(std::move(*sample), ConversionPoint{set_, next.archive, next.byte});
    }
    if (samples->empty()) return {};
    return [this, samples] {
      Block block;
      for (auto& [sample, next] : *samples) {
        Prepared& image = block.emplace_back();
        image.next = next;
        image.entry.name = std::move(sample.name);
        image.class_name = std::move(sample.class_name);
        image.problem = std::move(sample.problem);
        if (!image.problem.empty()) continue;
        image.problem = problem_of([&, &bytes = sample.bytes] {
          const std::span bytes_of_file(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
          prepare({bytes_of_file, image.entry.name, applies_exif_}, options_, image.entry);
        });
      }
      return block;
    };
  }

 private:
  TarSets sets_;
  const EncodedOptions& options_;
  bool applies_exif_;
  std::size_t set_ = 0;
  std::optional<TarReader> reader_;
};

std::unique_ptr<Source> open_source(const DataRequest& request, const EncodedOptions& options,
                                    std::vector<std::string>& notes) {
  if (auto tars = find_tars(request.train, request.test)) {
    if (request.validation_ratio > 0) {
      throw Error(ErrorSource::usage, "--validation-ratio with tar archives: leave it out here, and train with it");
    }
    return std::make_unique<TarSource>(std::move(*tars), options, request.applies_exif);
  }
  DataRequest listing = request;
  listing.verification = Verification::none;
  // Bad files are found while they are converted, unless the split must not count them.
  listing.skip_bad_images = request.skip_bad_images && request.validation_ratio > 0;
  if (listing.skip_bad_images) listing.verification = Verification::whole;
  OwnedData data = open_data(listing);
  notes = data.pair.notes;
  return std::make_unique<ListedSource>(std::move(data), options);
}

void refuse_wrong_options(const EncodedOptions& options) {
  if (options.short_side == 0 || options.long_side == 0) return;
  throw Error(ErrorSource::usage, "--short-side and --long-side both say how images are resized: give one of them");
}

class Conversion {
 public:
  Conversion(Source& source, PartialFile& file, const DataRequest& request, const EncodedOptions& options)
      : source_(source), file_(file), request_(request), options_(options) {}

  void run() {
    point_ = file_.point();
    const std::int64_t done = std::ssize(file_.index(0).labels) + std::ssize(file_.index(1).labels) + file_.skipped();
    options_.at_start(done, source_.samples());
    try {
      for (; point_.set < 2 && source_.has(point_.set); point_ = {point_.set + 1, 0, 0}) convert_set();
    } catch (const Error& error) {
      if (error.source() != ErrorSource::save) file_.checkpoint(point_);
      throw;
    } catch (...) {
      file_.checkpoint(point_);
      throw;
    }
    file_.checkpoint(point_);
  }

 private:
  void convert_set() {
    source_.seek(point_);
    for_each_in_order<Block>(
        options_.threads, [&] { return source_.next(); }, [&](Block block) { use(std::move(block)); });
    const std::int64_t bad = file_.skipped();
    if (!file_.index(point_.set).labels.empty()) return;
    throw Error(ErrorSource::input,
                bad > 0 ? fmt::format("all images of {} are bad: first {}", source_.info().name, file_.first_problem())
                        : fmt::format("{} has no {} files", source_.info().name, kImageExtensions));
  }

  void use(Block block) {
    for (Prepared& image : block) {
      if (!image.problem.empty()) {
        if (!request_.skip_bad_images) {
          throw Error(ErrorSource::input, fmt::format("{}; --skip-bad-images leaves such files out", image.problem));
        }
        file_.skip(image.problem);
      } else {
        if (!image.class_name.empty()) image.entry.label = label_of_class(image);
        file_.append(point_.set, image.entry);
      }
      point_ = image.next;
    }
    if (file_.bytes_since_checkpoint() >= options_.checkpoint_bytes ||
        since_checkpoint_.seconds() >= kSecondsBetweenCheckpoints) {
      file_.checkpoint(point_);
      since_checkpoint_ = Stopwatch();
    }
    options_.after_samples(std::ssize(block));
  }

  std::int32_t label_of_class(const Prepared& image) {
    refuse_broken_name(image.class_name, fmt::format("'{}'", image.entry.name));
    if (const auto label = file_.label_of(image.class_name, /*adds=*/point_.set == 0)) return *label;
    throw Error(ErrorSource::input, fmt::format("the test image '{}' has the class '{}', which no training image has",
                                                image.entry.name, image.class_name));
  }

  Source& source_;
  PartialFile& file_;
  const DataRequest& request_;
  const EncodedOptions& options_;
  ConversionPoint point_;
  Stopwatch since_checkpoint_;
};

// The classes of a source whose images name them, sorted, and the new label of each.
std::vector<std::int32_t> sort_classes(const std::vector<std::string>& found, DatasetInfo& info) {
  std::vector<std::int32_t> labels(found.empty() ? static_cast<std::size_t>(info.classes) : found.size());
  std::iota(labels.begin(), labels.end(), 0);
  if (found.empty()) return labels;
  info.class_names = sorted_classes(found);
  info.classes = static_cast<int>(found.size());
  std::ranges::transform(found, labels.begin(), [&](const std::string& name) {
    return static_cast<std::int32_t>(std::ranges::find(info.class_names, name) - info.class_names.begin());
  });
  return labels;
}

EncodedReport convert(const DataRequest& request, const std::string& path, const EncodedOptions& options) {
  refuse_wrong_options(options);
  EncodedReport report;
  const std::unique_ptr<Source> source = open_source(request, options, report.notes);
  DatasetInfo info = source->info();
  refuse_broken_names(info);
  PartialFile file(path,
                   {{"format", kEncodedFormat},
                    {"source", source->identity()},
                    {"short side", options.short_side},
                    {"long side", options.long_side},
                    {"quality", options.quality},
                    {"shard bytes", options.shard_bytes},
                    {"exif", request.applies_exif}},
                   options.shard_bytes);
  const bool keeps_bytes = options.short_side == 0 && options.long_side == 0;
  if (const auto bytes = source->bytes(); bytes && keeps_bytes) {
    refuse_scarce_disk(path, *bytes - file.bytes(), "choose another disk, or a --short-side");
  }
  Conversion(*source, file, request, options).run();
  report.train_samples = std::ssize(file.index(0).labels);
  report.test_samples = std::ssize(file.index(1).labels);
  report.files = file.files();
  report.encoded_again = file.encoded_again();
  report.skipped = file.skipped();
  report.first_problem = file.first_problem();
  const std::vector<std::int32_t> labels = sort_classes(file.classes(), info);
  refuse_broken_names(info);
  file.finish(info, labels);
  for (std::int64_t shard = 0; shard < report.files; ++shard) {
    report.bytes += static_cast<std::int64_t>(std::filesystem::file_size(shard_path(path, shard)));
  }
  return report;
}

}  // namespace

EncodedReport write_encoded_file(const DataRequest& request, const std::string& path, const EncodedOptions& options) {
  try {
    return convert(request, path, options);
  } catch (const std::filesystem::filesystem_error& failure) {
    throw cannot_look_into(failure);
  }
}

}  // namespace tutti
