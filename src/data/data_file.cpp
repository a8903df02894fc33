#include "tutti/data/data_file.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/row_file.hpp"

#include "data_block.hpp"
#include "find_sets.hpp"
#include "fitted_blocks.hpp"
#include "loaded_set.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <numeric>
#include <utility>

namespace tutti {
namespace {

constexpr const char* kFormat = "tutti data set 1";

void refuse_broken_names(const DatasetInfo& info) {
  for (const std::string& name : info.class_names) {
    const bool breaks = name.find_first_of(std::string_view("\n\0", 2)) != std::string::npos;
    if (!breaks && is_utf8(name)) continue;
    throw Error(ErrorSource::input,
                fmt::format("a class of {} has {} in its name '{}'; rename it", info.name,
                            breaks ? "a line break or a zero byte" : "bytes that are not UTF-8", printable(name)));
  }
}

// A data file that is being written, set by set.
class DataFileWriter {
 public:
  DataFileWriter(const std::string& path, const DatasetInfo& info, const DataFileOptions& options)
      : options_(options),
        recipe_(
            make_recipe({.augment = "none", .normalize = "none", .image_size = options.image_size, .seed = 0}, info)),
        file_(path) {
    file_.add_text("/format", kFormat);
    file_.add_text("/name", info.name);
    file_.add_text("/class_names", fmt::format("{}", fmt::join(info.class_names, "\n")));
    const std::array<std::int32_t, 1> classes{info.classes};
    file_.add("/classes", Shape{1}, classes);
  }

  // Returns what the set's pixels sum up to.
  ChannelSums write_set(const std::string& group, const Dataset& set) {
    const Shape& image = recipe_.image;
    ChannelSums sums(image[0], image[1] * image[2]);
    std::vector<std::int32_t> labels;
    std::vector<std::int32_t> checksums;
    std::uint64_t images_digest = 0;
    file_.begin_rows(group + "/images", image.batch_of(set.info().samples));
    for_each_block({.set = set, .recipe = recipe_, .threads = options_.threads}, [&](const FittedBlock& block) {
      file_.append_rows(block.pixels);
      sums.add(block.sums);
      images_digest += block.digest;
      labels.insert(labels.end(), block.labels.begin(), block.labels.end());
      checksums.insert(checksums.end(), block.checksums.begin(), block.checksums.end());
      options_.after_samples(std::ssize(block.labels));
    });
    const std::span<const std::int32_t> all_labels(labels);
    file_.add(group + "/labels", Shape{set.info().samples}, all_labels);
    file_.add(group + "/checksums", Shape{set.info().samples}, std::span<const std::int32_t>(checksums));
    file_.add_text(group + "/digest", digest_text(images_digest + digest("labels", all_labels)));
    return sums;
  }

  void finish(const ChannelStatistics& statistics) {
    const Shape channels{recipe_.image[0]};
    file_.add("/mean", channels, statistics.mean);
    file_.add("/deviation", channels, statistics.deviation);
    file_.keep();
  }

 private:
  const DataFileOptions& options_;
  ImageRecipe recipe_;
  RowFileWriter file_;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

class DataFileReader {
 public:
  explicit DataFileReader(const std::string& path)
      : file_(path), bytes_(static_cast<std::int64_t>(std::filesystem::file_size(path))) {
    if (!file_.contains("/format") || file_.read_text("/format") != kFormat) {
      refuse(fmt::format("its format is not '{}'", kFormat));
    }
    std::array<std::int32_t, 1> classes{};
    file_.read("/classes", Shape{1}, classes);
    info_.name = file_.read_text("/name");
    info_.classes = classes[0];
    info_.class_names = lines_of(file_.read_text("/class_names"));
    if (classes[0] < 1 || (!info_.class_names.empty() && std::ssize(info_.class_names) != classes[0])) {
      refuse(fmt::format("it tells of {} classes and names {}", classes[0], info_.class_names.size()));
    }
    const Shape images = shape_of("/train/images");
    info_.statistics.mean = read_statistic("/mean", images[1]);
    info_.statistics.deviation = read_statistic("/deviation", images[1]);
  }

  bool has_checksums() const { return file_.contains("/train/checksums"); }
  bool has_test() const { return file_.contains("/test/images"); }
  std::int64_t bytes_of(const std::string& group) const { return shape_of(group + "/images").elements(); }

  LoadedSet read(const std::string& group, bool resident) const {
    const Shape images = shape_of(group + "/images");
    LoadedSet set;
    set.info = info_;
    set.info.image = images.without_first();
    set.labels.resize(static_cast<std::size_t>(images[0]));
    file_.read(group + "/labels", Shape{images[0]}, std::span<std::int32_t>(set.labels));
    if (!resident) {
      StoredImages stored{
          file_.path(), group + "/images", {}, read_digest(group + "/digest"), read_checksums(group, images[0])};
      stored.rows.resize(set.labels.size());
      std::iota(stored.rows.begin(), stored.rows.end(), 0);
      set.pixels = std::move(stored);
      return set;
    }
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(images.elements()));
    file_.read_rows(group + "/images", 0, images[0], pixels);
    refuse_other_digest(group, digest("images", std::span<const std::uint8_t>(pixels)), set.labels);
    // Early versions stored constants for data in CIFAR format.
    if (group == "/train" && !has_checksums()) set.info.statistics = statistics_of(pixels, set.info.image);
    set.pixels = std::move(pixels);
    return set;
  }

  // Reads all rows of a set whose images stay in the file.
  void verify(const std::string& group, const LoadedSet& set) const {
    const std::int64_t row_bytes = set.info.image.elements();
    const auto rows = static_cast<std::int64_t>(set.labels.size());
    const std::int64_t at_once = set.info.samples_at_once();
    std::vector<std::uint8_t> pixels;
    std::uint64_t images_digest = 0;
    for (std::int64_t first = 0; first < rows; first += at_once) {
      const std::int64_t count = std::min(at_once, rows - first);
      pixels.resize(static_cast<std::size_t>(count * row_bytes));
      file_.read_rows(group + "/images", first, count, pixels);
      images_digest +=
          digest("images", std::span<const std::uint8_t>(pixels), static_cast<std::uint64_t>(first * row_bytes));
    }
    refuse_other_digest(group, images_digest, set.labels);
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(ErrorSource::input,
                fmt::format("'{}' cannot be read: {}; {} data convert writes it anew from its source", file_.path(),
                            reason, program_call()));
  }

  void refuse_other_digest(const std::string& group, std::uint64_t images_digest,
                           std::span<const std::int32_t> labels) const {
    const std::uint64_t expected = read_digest(group + "/digest");
    const std::uint64_t found = images_digest + digest("labels", labels);
    if (found == expected) return;
    refuse(fmt::format("the images and labels in {} have the digest {} instead of {}: it is damaged", group,
                       digest_text(found), digest_text(expected)));
  }

  std::vector<std::int32_t> read_checksums(const std::string& group, std::int64_t rows) const {
    std::vector<std::int32_t> checksums;
    if (!has_checksums()) return checksums;
    checksums.resize(static_cast<std::size_t>(rows));
    file_.read(group + "/checksums", Shape{rows}, std::span<std::int32_t>(checksums));
    return checksums;
  }

  Shape shape_of(const std::string& name) const {
    const Shape shape = file_.shape(name);
    if (shape.rank() != 4 || shape.elements() < 1) {
      refuse(fmt::format("{} is {} instead of N x C x H x W", name, shape.text()));
    }
    if (shape.elements() > bytes_) refuse(fmt::format("{} of {} is larger than the file", name, shape.text()));
    return shape;
  }

  std::uint64_t read_digest(const std::string& name) const {
    const std::string words = file_.read_text(name);
    std::uint64_t digest = 0;
    const auto [end, failure] = std::from_chars(words.data(), words.data() + words.size(), digest, 16);
    if (failure != std::errc{} || digest_text(digest) != words) refuse(fmt::format("{} is '{}'", name, words));
    return digest;
  }

  std::vector<double> read_statistic(const std::string& name, std::int64_t channels) const {
    std::vector<double> values(static_cast<std::size_t>(channels));
    file_.read(name, Shape{channels}, std::span<double>(values));
    return values;
  }

  ArrayFile file_;
  std::int64_t bytes_;
  DatasetInfo info_;
};

}  // namespace

void write_data_file(const DataPair& data, const std::string& path, const DataFileOptions& options) {
  const DatasetInfo& info = data.train->info();
  refuse_broken_names(info);
  DataFileWriter writer(path, info, options);
  const ChannelSums sums = writer.write_set("/train", *data.train);
  if (data.test) writer.write_set("/test", *data.test);
  writer.finish(sums.statistics());
}

LoadedPair read_data_file(const std::string& path, const DataRequest& request) {
  try {
    check_seal(path);
  } catch (const Error& error) {
    refuse_foreign_file(path);
    throw Error(error.source(), fmt::format("{}; {} data convert writes data files", error.what(), program_call()));
  }
  const DataFileReader file(path);
  const std::int64_t bytes = file.bytes_of("/train") + (file.has_test() ? file.bytes_of("/test") : 0);
  const bool resident =
      request.most_resident_bytes == 0 || static_cast<std::size_t>(bytes) <= request.most_resident_bytes;
  const bool verifies = request.data_file_check == DataFileCheck::all ||
                        (request.data_file_check == DataFileCheck::without_checksums && !file.has_checksums());
  const auto read = [&](const std::string& group) {
    LoadedSet set = file.read(group, resident);
    if (!resident && verifies) file.verify(group, set);
    return set;
  };
  LoadedPair pair;
  pair.train = read("/train");
  if (file.has_test()) {
    pair.test = read("/test");
    pair.test->info.name += " (test)";
  }
  if (!resident && !verifies && !file.has_checksums()) {
    pair.notes.push_back(
        fmt::format("'{}' was written by an early version and has no checksums: damage of its images is not noticed as "
                    "they are read; {} data convert it to a new file, which verifies them and adds checksums",
                    path, program_call()));
  }
  return pair;
}

}  // namespace tutti
