#include "tutti/data/data_file.hpp"

#include "tutti/base/checksums.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/seal.hpp"

#include "data_file_content.hpp"
#include "image_codec.hpp"
#include "image_geometry.hpp"
#include "ordered_work.hpp"
#include "pixel_writer.hpp"
#include "sources.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

namespace tutti {
namespace {

constexpr const char* kFormat = "tutti data set 1";
constexpr const char* kFit = "the whole short side, the center of the long side";

constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;
// Small enough that a few images that are slow to decode are spread over the threads, too.
constexpr std::int64_t kMaxSlowSamples = 64;

std::int64_t samples_per_block(const Dataset& set, const Shape& image) {
  const std::int64_t fitting = std::max<std::int64_t>(1, kBlockBytes / image.elements());
  return set.resident_bytes() > 0 ? fitting : std::min(fitting, kMaxSlowSamples);
}

// Images of a set, read, decoded and fitted to one size.
struct FittedBlock {
  std::vector<std::uint8_t> pixels;  // N, C, H, W
  std::vector<std::int32_t> labels;
  std::vector<std::int32_t> checksums;  // CRC-32C of each image's pixels
  std::uint64_t digest = 0;             // of the pixels: their term of the whole set's digest("images")
  ChannelSums sums;
};

FittedBlock make_block(const Dataset& set, const ImageRecipe& recipe, std::int64_t first, std::int64_t count) {
  const auto image_values = static_cast<std::size_t>(recipe.image.elements());
  const std::int64_t at_once = set.info().samples_at_once();
  FittedBlock block{{}, {}, {}, 0, ChannelSums(recipe.image)};
  block.pixels.reserve(static_cast<std::size_t>(count) * image_values);
  PixelWriter writer(recipe);
  std::vector<float> values(image_values);  // 0 to 1
  std::vector<std::int64_t> samples;
  SampleBatch batch;
  const auto append = [&](const ImageView& view) {
    if (view.shape == recipe.image) {
      block.pixels.insert(block.pixels.end(), view.pixels, view.pixels + image_values);
      return;
    }
    writer.write(view, plan_image(recipe, view.shape, {}), values);
    std::ranges::transform(values, std::back_inserter(block.pixels), byte_of);
  };
  for (std::int64_t read = 0; read < count; read += at_once) {
    samples.resize(static_cast<std::size_t>(std::min(at_once, count - read)));
    std::iota(samples.begin(), samples.end(), first + read);
    set.read(samples, batch);
    std::ranges::for_each(batch.images, append);
    block.labels.insert(block.labels.end(), batch.labels.begin(), batch.labels.end());
  }
  const std::span<const std::uint8_t> pixels(block.pixels);
  block.sums.add(pixels);
  for (std::size_t at = 0; at < pixels.size(); at += image_values) {
    block.checksums.push_back(static_cast<std::int32_t>(crc32c(std::as_bytes(pixels.subspan(at, image_values)))));
  }
  block.digest = digest("images", pixels, static_cast<std::uint64_t>(first * recipe.image.elements()));
  return block;
}

// Makes blocks in threads and passes them to `use` in the order of the set. Throws the first error in that order.
void for_each_block(const Dataset& set, const ImageRecipe& recipe, int threads,
                    const std::function<void(const FittedBlock&)>& use) {
  const std::int64_t samples = set.info().samples;
  const std::int64_t per_block = samples_per_block(set, recipe.image);
  std::int64_t first = 0;
  const auto next = [&]() -> std::function<FittedBlock()> {
    if (first == samples) return {};
    const std::int64_t count = std::min(per_block, samples - first);
    return [&, count, begin = std::exchange(first, first + count)] { return make_block(set, recipe, begin, count); };
  };
  for_each_in_order<FittedBlock>(threads, next, [&](FittedBlock block) { use(block); });
}

// The name of each sample's image file, followed by a zero byte. A name that cannot be printed is escaped. Empty if the
// set has no names.
std::vector<std::uint8_t> packed_names(const Dataset& set) {
  std::vector<std::uint8_t> bytes;
  const std::int64_t samples = set.info().samples;
  if (samples == 0 || set.name_of(0).empty()) return bytes;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const std::string name = printable(set.name_of(sample));
    bytes.insert(bytes.end(), name.begin(), name.end());
    bytes.push_back(0);
  }
  return bytes;
}

// Returns the sums of the set's pixels.
ChannelSums write_set(RowFileWriter& file, const std::string& group, const Dataset& set, const ImageRecipe& recipe,
                      const DataFileOptions& options) {
  const std::int64_t samples = set.info().samples;
  ChannelSums sums(recipe.image);
  std::vector<std::int32_t> labels;
  std::vector<std::int32_t> checksums;
  std::uint64_t images_digest = 0;
  file.begin_rows(group + "/images", recipe.image.batch_of(samples));
  for_each_block(set, recipe, options.threads, [&](const FittedBlock& block) {
    file.append_rows(block.pixels);
    sums.add(block.sums);
    images_digest += block.digest;
    labels.insert(labels.end(), block.labels.begin(), block.labels.end());
    checksums.insert(checksums.end(), block.checksums.begin(), block.checksums.end());
    options.after_samples(std::ssize(block.labels));
  });
  file.add(group + "/labels", Shape{samples}, labels);
  file.add(group + "/checksums", Shape{samples}, checksums);
  if (const auto names = packed_names(set); !names.empty()) file.add(group + "/names", Shape{std::ssize(names)}, names);
  file.add_text(group + "/digest",
                digest_text(images_digest + digest("labels", std::span<const std::int32_t>(labels))));
  return sums;
}

class DataFileReader : DataFileContent {
 public:
  explicit DataFileReader(const std::string& path) : DataFileContent(path, kFormat) {
    info_.has_short_side = file_.contains("/fit") && file_.read_text("/fit") == kFit;
    read_statistics(shape_of("/train/images")[1]);
  }

  bool has_checksums() const { return file_.contains("/train/checksums"); }
  bool has_test() const { return file_.contains("/test/images"); }
  std::int64_t bytes_of(const std::string& group) const { return shape_of(group + "/images").elements(); }

  // Images are loaded into `block`; null: they stay in the file.
  LoadedSet read(const std::string& group, GrowingMemory* block) const {
    const Shape images = shape_of(group + "/images");
    LoadedSet set;
    set.info = info_;
    set.info.image = images.without_first();
    set.labels = read_all<std::int32_t>(group + "/labels", images[0]);
    set.names = read_utf8_names(group + "/names", images[0]);
    if (block == nullptr) {
      StoredImages stored{file_.path(), group + "/images", {}, read_digest(group + "/digest")};
      if (has_checksums()) stored.checksums = read_all<std::int32_t>(group + "/checksums", images[0]);
      stored.rows.resize(set.labels.size());
      std::iota(stored.rows.begin(), stored.rows.end(), 0);
      set.pixels = std::move(stored);
      return set;
    }
    const Pixels pixels = add_pixels(*block, static_cast<std::size_t>(images.elements()));
    file_.read_rows(group + "/images", 0, images[0], pixels.bytes());
    refuse_other_digest(group, digest("images", std::span<const std::uint8_t>(pixels.bytes())), set.labels);
    // Early versions stored constants for data in CIFAR format.
    if (group == "/train" && !has_checksums()) set.info.statistics = statistics_of(pixels.bytes(), set.info.image);
    set.pixels = pixels;
    return set;
  }

  // Reads and verifies all rows of a set whose images are not loaded into memory.
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
  void refuse_other_digest(const std::string& group, std::uint64_t images_digest,
                           std::span<const std::int32_t> labels) const {
    const std::uint64_t expected = read_digest(group + "/digest");
    const std::uint64_t found = images_digest + digest("labels", labels);
    if (found == expected) return;
    refuse(fmt::format("the images and labels in {} have the digest {} instead of {}: it is damaged", group,
                       digest_text(found), digest_text(expected)));
  }

  Shape shape_of(const std::string& name) const {
    const Shape shape = file_.shape(name);
    if (shape.ndim() != 4 || shape.elements() < 1) {
      refuse(fmt::format("{} is {} instead of N x C x H x W", name, shape.text()));
    }
    if (shape.elements() > bytes_) refuse(fmt::format("{} of {} is larger than the file", name, shape.text()));
    return shape;
  }

  // Early versions stored no names.
  std::vector<std::string> read_utf8_names(const std::string& array, std::int64_t samples) const {
    if (!file_.contains(array)) return {};
    std::vector<std::string> names = read_names(array, samples);
    const auto wrong = std::ranges::find_if_not(names, is_utf8);
    if (wrong == names.end()) return names;
    refuse(fmt::format("the name of sample {} in {} is not UTF-8", wrong - names.begin(), array));
  }

  std::uint64_t read_digest(const std::string& name) const {
    const std::string text = file_.read_text(name);
    if (const auto digest = parse_digest(text)) return *digest;
    refuse(fmt::format("{} is '{}'", name, text));
  }
};

constexpr std::array<std::uint8_t, 8> kHdf5Signature{0x89, 'H', 'D', 'F', '\r', '\n', 0x1A, '\n'};

// Throws an input error for a file without an HDF5 signature; ignores files that cannot be read.
void refuse_foreign_file(const std::string& path) {
  std::array<std::uint8_t, kHdf5Signature.size()> first{};
  if (!is_plain_file(path)) return;
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  file.read(reinterpret_cast<char*>(first.data()), first.size());
  if (file.bad() || first == kHdf5Signature) return;
  const auto refuse = [](const std::string& text) { throw Error(ErrorSource::input, text); };
  if (has_image_signature(std::span(first).first(static_cast<std::size_t>(file.gcount())))) {
    refuse(fmt::format("'{}' is an image; give --data the folder that contains the class folders", path));
  }
  refuse(fmt::format("'{}' is not a data set: give a folder, or an HDF5 file that {} data convert wrote", path,
                     program_call()));
}

std::int64_t bytes_of(const Shape& image, const DatasetInfo& info) { return image.elements() * info.samples; }

// Leaves room for the page cache. 0 if the size of the memory is unknown.
std::size_t quarter_of_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_bytes) / 4 : 0;
}

}  // namespace

void write_data_file(const DataPair& data, const std::string& path, const DataFileOptions& options) {
  const DatasetInfo& info = data.train->info();
  refuse_broken_names(info);
  const ImageRecipe recipe =
      make_recipe({.normalize = "none", .image_size = options.image_size, .seed = 0, .keeps_short_side = true}, info);
  refuse_scarce_disk(path, bytes_of(recipe.image, info) + (data.test ? bytes_of(recipe.image, data.test->info()) : 0),
                     "choose a smaller --image-size or another disk");
  RowFileWriter file(path);
  file.add_text("/format", kFormat);
  // A set that an earlier version has cropped stays cropped.
  if (info.has_short_side.value_or(true)) file.add_text("/fit", kFit);
  write_description(file, info);
  const ChannelStatistics statistics = write_set(file, "/train", *data.train, recipe, options).statistics();
  if (data.test) write_set(file, "/test", *data.test, recipe, options);
  const Shape channels{recipe.image[0]};
  file.add("/mean", channels, statistics.mean);
  file.add("/deviation", channels, statistics.deviation);
  file.commit();
}

LoadedPair read_data_file(const std::string& path, const DataRequest& request, DataFileSets sets,
                          GrowingMemory& block) {
  try {
    check_seal(path);
  } catch (const Error& error) {
    if (error.source() == ErrorSource::io) throw;
    refuse_foreign_file(path);
    throw Error(error.source(), fmt::format("{}; {} data convert writes data files", error.what(), program_call()));
  }
  if (is_encoded_file(path)) return read_encoded_file(path, request, sets);
  const DataFileReader file(path);
  const std::int64_t bytes = file.bytes_of("/train") + (file.has_test() ? file.bytes_of("/test") : 0);
  const std::size_t most = request.most_resident_bytes == 0 ? quarter_of_memory() : request.most_resident_bytes;
  const bool resident = most == 0 || static_cast<std::size_t>(bytes) <= most;
  const bool verifies = request.data_file_check == DataFileCheck::all ||
                        (request.data_file_check == DataFileCheck::without_checksums && !file.has_checksums());
  const auto read = [&](const std::string& group) {
    LoadedSet set = file.read(group, resident ? &block : nullptr);
    if (!resident && verifies) file.verify(group, set);
    return set;
  };
  LoadedPair pair;
  if (sets == DataFileSets::both || !file.has_test()) pair.train = read("/train");
  if (file.has_test()) {
    pair.test = read("/test");
    pair.test->info.name += " (test)";
  }
  if (!resident && !verifies && !file.has_checksums()) {
    pair.notes.push_back(
        fmt::format("'{}' was written by an early version and has no checksums: damaged images are not detected when "
                    "they are read; {} data convert it to a new file, which verifies them and adds checksums",
                    path, program_call()));
  }
  return pair;
}

}  // namespace tutti
