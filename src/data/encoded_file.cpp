#include "encoded_file.hpp"

#include "tutti/base/checksums.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"
#include "tutti/base/unique_handle.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/seal.hpp"

#include "data_file_content.hpp"
#include "image_codec.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// An image file among those of all shards.
struct EncodedImage {
  std::int64_t begin = 0;
  std::int32_t bytes = 0;
  std::int32_t checksum = 0;
};

// Shards, open for reading. They are read without HDF5, which would make all readers wait for one another.
class OpenShards {
 public:
  explicit OpenShards(std::vector<EncodedShard> shards) : shards_(std::move(shards)) {
    for (const EncodedShard& shard : shards_) {
      const auto& file = files_.emplace_back(
          retry_on_eintr([&] { return ::open(shard.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
      if (!file) throw failed(shard.path, "open", errno);
      const ImageFiles::File now = file_at(shard.path, {});
      if (now.bytes == shard.bytes && now.modified == shard.modified) continue;
      throw Error(ErrorSource::input, fmt::format("'{}' has changed since it was opened: start again, and do not "
                                                  "change it during a run",
                                                  shard.path));
    }
  }

  const std::string& path() const { return shards_.front().path; }

  // Replaces `content`. Thread-safe.
  void read(const EncodedImage& image, const std::string& name, std::vector<std::byte>& content) const {
    const auto after = std::ranges::upper_bound(shards_, image.begin, {}, &EncodedShard::first);
    const auto index = static_cast<std::size_t>(after - shards_.begin() - 1);
    const EncodedShard& shard = shards_[index];
    content.resize(static_cast<std::size_t>(image.bytes));
    std::size_t got = 0;
    while (got < content.size()) {
      const auto at = static_cast<off_t>(shard.offset + image.begin - shard.first) + static_cast<off_t>(got);
      const ssize_t more =
          retry_on_eintr([&] { return ::pread(files_[index].get(), content.data() + got, content.size() - got, at); });
      if (more < 0) throw failed(shard.path, "read", errno);
      if (more == 0) break;
      got += static_cast<std::size_t>(more);
    }
    const std::uint32_t found = crc32c(std::span(content).first(got));
    const auto expected = static_cast<std::uint32_t>(image.checksum);
    if (got == content.size() && found == expected) return;
    throw Error(ErrorSource::input,
                fmt::format("'{}' is damaged: the image '{}' has the checksum {:08x} instead of {:08x}; restore the "
                            "file from a copy, or {} data convert its source again",
                            shard.path, name, found, expected, program_call()));
  }

 private:
  static Error failed(const std::string& path, const char* action, int error) {
    return Error(ErrorSource::io,
                 fmt::format("cannot {} '{}': {}", action, path, std::generic_category().message(error)));
  }

  std::vector<EncodedShard> shards_;
  std::vector<Descriptor> files_;
};

class EncodedFileSet final : public EncodedDataset {
 public:
  EncodedFileSet(LazySet set, PackedEncodedFiles files)
      : EncodedDataset(std::move(set)), shards_(std::move(files.shards)), files_(std::move(files)) {}

  ImageFile image_file(std::int64_t sample, std::vector<std::byte>& buffer) const override {
    const std::size_t index = info().index_of(sample);
    const std::string name = name_of(sample);
    shards_.read({files_.begins[index], files_.bytes[index], files_.checksums[index]}, name, buffer);
    return {.bytes = {reinterpret_cast<const std::uint8_t*>(buffer.data()), buffer.size()},
            .name = fmt::format("{}:{}", shards_.path(), name),
            .applies_exif = files_.applies_exif,
            .remedy = "--skip-bad-images leaves such files out"};
  }

 private:
  OpenShards shards_;
  PackedEncodedFiles files_;
};

bool has_format(const ArrayFile& file, const char* format) {
  return file.contains("/format") && file.read_text("/format") == format;
}

class EncodedFileReader : DataFileContent {
 public:
  EncodedFileReader(const std::string& path, bool applies_exif)
      : DataFileContent(path, kEncodedFormat), applies_exif_(applies_exif) {
    files_.push_back(file_);
    if (file_.contains("/shards")) {
      for (const std::string& digest : lines_of(file_.read_text("/shards")))
        files_.push_back(open_shard(std::ssize(files_), digest));
    }
    const std::int64_t channels = length_of("/mean");
    if (channels != 1 && channels != 3) refuse(fmt::format("/mean has {} values", channels));
    read_statistics(channels);
  }

  bool has_test() const { return file_.contains("/test/labels"); }

  LoadedSet read(const std::string& group) const {
    LoadedSet set;
    set.info = info_;
    const std::int64_t samples = length_of(group + "/labels");
    if (samples == 0) refuse(group + " has no images");
    set.labels = read_all<std::int32_t>(group + "/labels", samples);
    set.names = read_names(group + "/names", samples);
    set.info.image = read_shape(group + "/shapes", samples);
    EncodedFiles files{.applies_exif = applies_exif_};
    files.checksums = read_all<std::int32_t>(group + "/checksums", samples);
    const auto ends = read_all<std::int64_t>(group + "/ends", samples);
    for (std::int64_t end : ends) {
      const std::int64_t begin = files.begins.empty() ? 0 : files.begins.back() + files.bytes.back();
      if (end <= begin || end - begin > kMaxImageFileBytes) {
        refuse(fmt::format("file {} in {} ends at {} and begins at {}", files.begins.size(), group, end, begin));
      }
      files.begins.push_back(begin);
      files.bytes.push_back(static_cast<std::int32_t>(end - begin));
    }
    add_shards(group, ends, files);
    set.pixels = std::move(files);
    return set;
  }

 private:
  ArrayFile open_shard(std::int64_t shard, const std::string& digest) const {
    const std::string path = shard_path(file_.path(), shard);
    if (!file_exists(path)) {
      throw Error(ErrorSource::io, fmt::format("'{}' is missing, which has a part of the images of '{}': restore it",
                                               path, file_.path()));
    }
    check_seal(path);
    ArrayFile file(path);
    if (has_format(file, kEncodedShardFormat) && file.read_text("/digest") == digest) return file;
    throw Error(ErrorSource::input, fmt::format("'{}' is not the file of that name that was written with '{}': restore "
                                                "both, or {} data convert their source again",
                                                path, file_.path(), program_call()));
  }

  // The shape of all images, as that of a folder: in color if one is, and without a size if they differ.
  Shape read_shape(const std::string& array, std::int64_t samples) const {
    std::vector<std::int32_t> shapes(static_cast<std::size_t>(samples * kShapeNumbers));
    file_.read(array, Shape{samples, kShapeNumbers}, shapes);
    Shape image;
    for (std::size_t i = 0; i < shapes.size(); i += kShapeNumbers) {
      std::int64_t height = shapes[i + 1];
      std::int64_t width = shapes[i + 2];
      const std::int32_t orientation = shapes[i + 3];
      const bool is_valid = (shapes[i] == 1 || shapes[i] == kColorChannels) && height > 0 && width > 0 &&
                            height <= kMaxPixels / width && orientation >= 1 && orientation <= 8;
      if (!is_valid) refuse(fmt::format("{} has no valid shape of image {}", array, i / kShapeNumbers));
      if (applies_exif_ && orientation >= 5) std::swap(height, width);
      if (i == 0) image = Shape{shapes[i], height, width};
      const bool is_same = image[1] == height && image[2] == width;
      image = Shape{std::max<std::int64_t>(image[0], shapes[i]), is_same ? height : 0, is_same ? width : 0};
    }
    return image;
  }

  // Each shard has an array of bytes for the samples from its first one on.
  void add_shards(const std::string& group, std::span<const std::int64_t> ends, EncodedFiles& files) const {
    const auto shards = std::ssize(files_);
    std::vector<std::int64_t> firsts{0};
    if (shards > 1) firsts = read_all<std::int64_t>(group + "/shards", shards);
    firsts.push_back(std::ssize(ends));
    if (firsts.front() != 0 || !std::ranges::is_sorted(firsts)) refuse(group + "/shards is not in order");
    for (std::size_t i = 0; i < files_.size(); ++i) {
      if (firsts[i] == firsts[i + 1]) continue;
      const ArrayFile& file = files_[i];
      const ImageFiles::File status = file_at(file.path(), {});
      const std::int64_t first = firsts[i] == 0 ? 0 : ends[static_cast<std::size_t>(firsts[i] - 1)];
      const std::string array = group + "/files";
      const Shape shape = file.shape(array);
      if (shape.ndim() != 1 || ends[static_cast<std::size_t>(firsts[i + 1] - 1)] - first > shape[0]) {
        refuse(fmt::format("{} in '{}' of {} bytes ends before its files", array, file.path(), shape.text()));
      }
      files.shards.push_back({file.path(), first, file.offset(array), status.bytes, status.modified});
    }
  }

  bool applies_exif_;
  std::vector<ArrayFile> files_;
};

}  // namespace

std::string shard_path(const std::string& path, std::int64_t shard) {
  const fs::path whole(path);
  if (shard == 0) return path;
  return (whole.parent_path() / fmt::format("{}-{:05}{}", whole.stem().string(), shard, whole.extension().string()))
      .string();
}

std::unique_ptr<Dataset> make_encoded_files(LazySet set, PackedEncodedFiles files) {
  return std::make_unique<EncodedFileSet>(std::move(set), std::move(files));
}

bool is_encoded_file(const std::string& path) { return has_format(ArrayFile(path), kEncodedFormat); }

LoadedPair read_encoded_file(const std::string& path, const DataRequest& request, DataFileSets sets) {
  const EncodedFileReader file(path, request.applies_exif);
  LoadedPair pair;
  if (sets == DataFileSets::both || !file.has_test()) pair.train = file.read(kSetGroups[0]);
  if (file.has_test()) {
    pair.test = file.read(kSetGroups[1]);
    pair.test->info.name += " (test)";
  }
  return pair;
}

ImageFindings examine_encoded(const LoadedSet& set, const DataRequest& request, bool find_bad) {
  const auto& files = std::get<EncodedFiles>(set.pixels);
  const std::size_t count = set.labels.size();
  const bool reads_all = request.data_file_check == DataFileCheck::all;
  const bool decodes_all = request.verification == Verification::whole || request.skip_bad_images;
  if (!reads_all && !decodes_all && request.verification != Verification::sample) return {};
  const OpenShards shards(files.shards);
  return examine_each(count, shards.path(), /*checks_all=*/true, find_bad, [&](std::size_t i) {
    const bool decodes = decodes_all || is_sampled(i, count);
    if (!decodes && !reads_all) return Shape{1, 1, 1};
    std::vector<std::byte> content;
    shards.read({files.begins[i], files.bytes[i], files.checksums[i]}, set.names[i], content);
    std::vector<std::uint8_t> pixels;
    const ImageFile image{{reinterpret_cast<const std::uint8_t*>(content.data()), content.size()}, path_of(set, i)};
    if (!decodes) return Shape{1, 1, 1};
    return decode_image(image, kColorChannels, pixels);
  });
}

}  // namespace tutti
