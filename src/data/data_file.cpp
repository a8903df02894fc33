#include "tutti/data/data_file.hpp"

#include "tutti/base/checksums.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"
#include "tutti/data/image_recipe.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/seal.hpp"

#include "image_codec.hpp"
#include "image_geometry.hpp"
#include "pixel_writer.hpp"
#include "sources.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <numeric>
#include <semaphore>
#include <sstream>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

constexpr const char* kFormat = "tutti data set 1";
constexpr const char* kFit = "the whole short side, the center of the long side";

void refuse_broken_names(const DatasetInfo& info) {
  for (const std::string& name : info.class_names) {
    const bool breaks = name.find_first_of(std::string_view("\n\0", 2)) != std::string::npos;
    if (!breaks && is_utf8(name)) continue;
    throw Error(ErrorSource::input,
                fmt::format("a class of {} has {} in its name '{}'; rename it", info.name,
                            breaks ? "a line break or a zero byte" : "bytes that are not UTF-8", printable(name)));
  }
}

constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;
// Small enough that a few images that are slow to decode are spread over the threads, too.
constexpr std::int64_t kMaxSlowSamples = 64;
constexpr std::int64_t kBlocksPerThread = 2;  // finished or in progress

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
    std::ranges::transform(values, std::back_inserter(block.pixels),
                           [](float value) { return static_cast<std::uint8_t>(value * 255.0f + 0.5f); });
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
  std::counting_semaphore<> workers(threads);
  std::deque<std::future<FittedBlock>> pending;
  for (std::int64_t first = 0; first < samples || !pending.empty();) {
    if (first < samples && std::ssize(pending) < kBlocksPerThread * threads) {
      pending.push_back(std::async(std::launch::async, [&, first] {
        workers.acquire();
        const std::shared_ptr<void> turn(nullptr, [&](void*) { workers.release(); });
        return make_block(set, recipe, first, std::min(per_block, samples - first));
      }));
      first += per_block;
    } else {
      use(pending.front().get());
      pending.pop_front();
    }
  }
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

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class DataFileReader {
 public:
  explicit DataFileReader(const std::string& path)
      : file_(path), bytes_(static_cast<std::int64_t>(std::filesystem::file_size(path))) {
    if (!file_.contains("/format") || file_.read_text("/format") != kFormat) {
      refuse(fmt::format("its format is not '{}'", kFormat));
    }
    info_.has_short_side = file_.contains("/fit") && file_.read_text("/fit") == kFit;
    info_.name = file_.read_text("/name");
    info_.classes = read_all<std::int32_t>("/classes", 1).front();
    info_.class_names = lines_of(file_.read_text("/class_names"));
    if (info_.classes < 1 || (!info_.class_names.empty() && std::ssize(info_.class_names) != info_.classes)) {
      refuse(fmt::format("it has {} classes, but {} class names", info_.classes, info_.class_names.size()));
    }
    const Shape images = shape_of("/train/images");
    info_.statistics.mean = read_all<double>("/mean", images[1]);
    info_.statistics.deviation = read_all<double>("/deviation", images[1]);
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
    set.names = read_names(group + "/names", images[0]);
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
  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(ErrorSource::input,
                fmt::format("'{}' cannot be read: {}; recreate it from its source with {} data convert", file_.path(),
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

  Shape shape_of(const std::string& name) const {
    const Shape shape = file_.shape(name);
    if (shape.ndim() != 4 || shape.elements() < 1) {
      refuse(fmt::format("{} is {} instead of N x C x H x W", name, shape.text()));
    }
    if (shape.elements() > bytes_) refuse(fmt::format("{} of {} is larger than the file", name, shape.text()));
    return shape;
  }

  // Early versions stored no names.
  std::vector<std::string> read_names(const std::string& array, std::int64_t samples) const {
    std::vector<std::string> names;
    if (!file_.contains(array)) return names;
    const Shape shape = file_.shape(array);
    if (shape.ndim() != 1 || shape[0] > bytes_) refuse(fmt::format("{} is {}", array, shape.text()));
    const auto bytes = read_all<std::uint8_t>(array, shape[0]);
    const auto refuse_count = [&] { refuse(fmt::format("{} does not have {} names", array, samples)); };
    for (auto begin = bytes.begin(); begin != bytes.end();) {
      const auto end = std::find(begin, bytes.end(), 0);
      if (end == bytes.end() || std::ssize(names) == samples) refuse_count();
      names.emplace_back(begin, end);
      if (!is_utf8(names.back())) {
        refuse(fmt::format("the name of sample {} in {} is not UTF-8", names.size() - 1, array));
      }
      begin = end + 1;
    }
    if (std::ssize(names) != samples) refuse_count();
    return names;
  }

  std::uint64_t read_digest(const std::string& name) const {
    const std::string text = file_.read_text(name);
    if (const auto digest = parse_digest(text)) return *digest;
    refuse(fmt::format("{} is '{}'", name, text));
  }

  template <class T>
  std::vector<T> read_all(const std::string& name, std::int64_t count) const {
    std::vector<T> values(static_cast<std::size_t>(count));
    file_.read(name, Shape{count}, values);
    return values;
  }

  ArrayFile file_;
  std::int64_t bytes_;
  DatasetInfo info_;
};

constexpr std::array<std::uint8_t, 8> kHdf5Signature{0x89, 'H', 'D', 'F', '\r', '\n', 0x1A, '\n'};

// Throws an input error for a file without an HDF5 signature; ignores files that cannot be read.
void refuse_foreign_file(const std::string& path) {
  std::array<std::uint8_t, kHdf5Signature.size()> first{};
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return;
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

void refuse_scarce_disk(const std::string& path, std::int64_t bytes) {
  constexpr double kGibi = std::int64_t{1} << 30;
  std::error_code unknown;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const auto available = std::filesystem::space(folder.empty() ? "." : folder, unknown).available;
  if (unknown || available >= static_cast<std::uintmax_t>(bytes)) return;
  throw Error(ErrorSource::save,
              fmt::format("'{}' would take {:.1f} GiB, and {:.1f} GiB are free there: choose a smaller --image-size or "
                          "another disk",
                          path, static_cast<double>(bytes) / kGibi, static_cast<double>(available) / kGibi));
}

}  // namespace

void write_data_file(const DataPair& data, const std::string& path, const DataFileOptions& options) {
  const DatasetInfo& info = data.train->info();
  refuse_broken_names(info);
  const ImageRecipe recipe =
      make_recipe({.normalize = "none", .image_size = options.image_size, .seed = 0, .keeps_short_side = true}, info);
  refuse_scarce_disk(path, bytes_of(recipe.image, info) + (data.test ? bytes_of(recipe.image, data.test->info()) : 0));
  RowFileWriter file(path);
  file.add_text("/format", kFormat);
  // A set that an earlier version has cropped stays cropped.
  if (info.has_short_side.value_or(true)) file.add_text("/fit", kFit);
  file.add_text("/name", info.name);
  file.add_text("/class_names", fmt::format("{}", fmt::join(info.class_names, "\n")));
  file.add("/classes", Shape{1}, std::array<std::int32_t, 1>{info.classes});
  const ChannelStatistics statistics = write_set(file, "/train", *data.train, recipe, options).statistics();
  if (data.test) write_set(file, "/test", *data.test, recipe, options);
  const Shape channels{recipe.image[0]};
  file.add("/mean", channels, statistics.mean);
  file.add("/deviation", channels, statistics.deviation);
  file.commit();
}

namespace {

// Leaves room for the page cache. 0 if the size of the memory is unknown.
std::size_t quarter_of_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page_bytes = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_bytes) / 4 : 0;
}

}  // namespace

LoadedPair read_data_file(const std::string& path, const DataRequest& request, DataFileSets sets,
                          GrowingMemory& block) {
  try {
    check_seal(path);
  } catch (const Error& error) {
    refuse_foreign_file(path);
    throw Error(error.source(), fmt::format("{}; {} data convert writes data files", error.what(), program_call()));
  }
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
