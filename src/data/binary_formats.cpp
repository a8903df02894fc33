#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"

#include "sources.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <map>
#include <source_location>
#include <span>
#include <string>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kZlibBufferBytes = 128 * 1024;
constexpr std::size_t kMaxPerCall = std::size_t{1} << 30;
constexpr std::size_t kLeastGrowth = 64 * 1024;
// The deflate format compresses at best 1032 to 1.
constexpr std::int64_t kBestCompression = 1032;

// A file read sequentially, gzip-compressed or raw as its first bytes say.
class GzFile {
 public:
  // Throws an io error when the file cannot be opened.
  explicit GzFile(fs::path path);

  bool is_raw() const noexcept { return is_raw_; }
  // Bytes read so far, after decompression.
  std::int64_t offset() const noexcept { return offset_; }
  // Upper bound of the content's size: exact for a raw file; for a compressed one, at the best possible compression.
  std::int64_t most_bytes() const noexcept { return most_bytes_; }

  // Fills the span; throws an input error if the content is too short.
  void read(std::span<std::uint8_t> bytes);
  // Fills as much of the span as content is left; returns the number of bytes.
  std::size_t read_some(std::span<std::uint8_t> bytes);
  // Appends `count` bytes. Allocates only as content arrives, so that a false header costs no memory.
  void append(std::vector<std::uint8_t>& bytes, std::int64_t count);
  // Throws an input error if any content is left.
  void expect_end();

  // Throws an input error that names the file, the offset and the reason.
  [[noreturn]] void refuse(std::int64_t offset, const std::string& reason,
                           std::source_location where = std::source_location::current()) const;

 private:
  struct Close {
    void operator()(gzFile_s* file) const noexcept { gzclose(file); }
  };

  [[noreturn]] void fail() const;

  fs::path path_;
  UniqueHandle<gzFile_s*, Close> file_;
  bool is_raw_ = false;
  std::int64_t most_bytes_ = 0;
  std::int64_t offset_ = 0;
};

GzFile::GzFile(fs::path path) : path_(std::move(path)) {
  std::error_code failure;
  const auto size = fs::file_size(path_, failure);
  if (failure) {
    throw Error(ErrorSource::io, fmt::format("cannot read '{}': {}", path_.string(), failure.message()));
  }
  errno = 0;
  file_ = UniqueHandle<gzFile_s*, Close>(gzopen(path_.c_str(), "rb"));
  if (!file_) {
    const char* reason = errno != 0 ? std::strerror(errno) : "out of memory";
    throw Error(ErrorSource::io, fmt::format("cannot open '{}': {}", path_.string(), reason));
  }
  gzbuffer(file_.get(), kZlibBufferBytes);
  is_raw_ = gzdirect(file_.get()) == 1;
  most_bytes_ = static_cast<std::int64_t>(size) * (is_raw_ ? 1 : kBestCompression);
}

std::size_t GzFile::read_some(std::span<std::uint8_t> bytes) {
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const std::size_t wanted = std::min(bytes.size() - filled, kMaxPerCall);
    const int got = gzread(file_.get(), bytes.data() + filled, static_cast<unsigned>(wanted));
    if (got < 0) fail();
    filled += static_cast<std::size_t>(got);
    offset_ += got;
    if (static_cast<std::size_t>(got) == wanted) continue;
    int status = Z_OK;
    gzerror(file_.get(), &status);
    if (status != Z_OK && status != Z_STREAM_END) fail();
    break;
  }
  return filled;
}

void GzFile::read(std::span<std::uint8_t> bytes) {
  const std::int64_t begin = offset_;
  const std::size_t got = read_some(bytes);
  if (got < bytes.size()) {
    refuse(offset_, fmt::format("the content ends here; {} bytes were expected from byte {} on", bytes.size(), begin));
  }
}

void GzFile::append(std::vector<std::uint8_t>& bytes, std::int64_t count) {
  const std::int64_t most = most_bytes_ - offset_;
  if (count > most) {
    refuse(offset_, fmt::format("the header announces {} more bytes, but the file has at most {}", count, most));
  }
  const std::size_t target = bytes.size() + static_cast<std::size_t>(count);
  while (bytes.size() < target) {
    const std::size_t size = bytes.size();
    const std::size_t next = is_raw_ ? target : std::min(target, size + std::max(size, kLeastGrowth));
    bytes.reserve(next);
    bytes.resize(next);
    read(std::span(bytes).subspan(size));
  }
}

void GzFile::expect_end() {
  std::array<std::uint8_t, 1> extra{};
  const std::int64_t end = offset_;
  if (read_some(extra) != 0) refuse(end, "there is more content than the header promises");
}

void GzFile::refuse(std::int64_t offset, const std::string& reason, std::source_location where) const {
  throw Error(ErrorSource::input,
              fmt::format("'{}' is malformed at byte {}{}: {}", path_.string(), offset,
                          is_raw_ ? "" : " of its uncompressed content", reason),
              where);
}

void GzFile::fail() const {
  int status = Z_OK;
  const char* reason = gzerror(file_.get(), &status);
  if (status == Z_ERRNO) {
    throw Error(ErrorSource::io,
                fmt::format("cannot read '{}' at byte {}: {}", path_.string(), offset_, std::strerror(errno)));
  }
  refuse(offset_, fmt::format("the compressed data are damaged or cut off ({})", reason));
}

constexpr std::uint32_t kLabelMagic = 0x00000801;
constexpr std::uint32_t kGreyMagic = 0x00000803;
constexpr std::uint32_t kChannelMagic = 0x00000804;
constexpr std::int64_t kWordBytes = 4;

std::uint32_t read_word(GzFile& file) {
  std::array<std::uint8_t, kWordBytes> bytes{};
  file.read(bytes);
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
}

// Reads an extent; refuses it if its product with the earlier ones exceeds what the file can contain.
std::int64_t read_extent(GzFile& file, std::string_view what, std::int64_t& product) {
  const std::int64_t offset = file.offset();
  const std::int64_t extent = read_word(file);
  if (extent == 0) file.refuse(offset, fmt::format("{} is 0", what));
  if (extent > file.most_bytes() / product) {
    file.refuse(offset, fmt::format("{} is {}, more than a file of this size can hold", what, extent));
  }
  product *= extent;
  return extent;
}

struct ImageBlock {
  std::int64_t count = 0;
  Shape image;
  std::vector<std::uint8_t> pixels;
};

ImageBlock read_images(GzFile& file) {
  const std::uint32_t magic = read_word(file);
  if (magic != kGreyMagic && magic != kChannelMagic) {
    file.refuse(0, fmt::format("magic 0x{:08x} is not that of idx images (0x{:08x} or 0x{:08x})", magic, kGreyMagic,
                               kChannelMagic));
  }
  ImageBlock block;
  std::int64_t bytes = 1;
  block.count = read_extent(file, "the number of images", bytes);
  const std::int64_t channels = magic == kChannelMagic ? read_extent(file, "the number of channels", bytes) : 1;
  const std::int64_t height = read_extent(file, "the height", bytes);
  const std::int64_t width = read_extent(file, "the width", bytes);
  block.image = Shape{channels, height, width};
  file.append(block.pixels, bytes);
  file.expect_end();
  return block;
}

std::vector<std::uint8_t> read_labels(GzFile& file, const ImageBlock& block, const fs::path& images) {
  const std::uint32_t magic = read_word(file);
  if (magic != kLabelMagic) {
    file.refuse(0, fmt::format("magic 0x{:08x} is not that of idx labels (0x{:08x})", magic, kLabelMagic));
  }
  const std::int64_t count = read_word(file);
  if (count != block.count) {
    file.refuse(kWordBytes,
                fmt::format("{} labels do not match the {} images of '{}'", count, block.count, images.string()));
  }
  std::vector<std::uint8_t> labels;
  file.append(labels, count);
  file.expect_end();
  return labels;
}

std::optional<fs::path> find_file(const fs::path& folder, std::string_view set, std::string_view content,
                                  std::span<const std::string_view> types) {
  for (const std::string_view type : types) {
    for (const std::string_view separator : {"-", "."}) {
      for (const std::string_view ending : {"", ".gz"}) {
        auto path = folder / fmt::format("{}-{}{}{}-ubyte{}", set, content, separator, type, ending);
        if (fs::exists(path)) return path;
      }
    }
  }
  return std::nullopt;
}

constexpr int kCifarClasses = 10;
constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kSide = 32;
constexpr std::int64_t kImageBytes = kChannels * kSide * kSide;
constexpr std::int64_t kRecordBytes = 1 + kImageBytes;
constexpr std::size_t kRecordsAtOnce = 16;
constexpr std::size_t kMaxNameBytes = 4096;

std::int64_t number_in(std::string_view text) {
  const auto first = std::find_if(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  std::int64_t number = 0;
  std::from_chars(first, text.end(), number);
  return number;
}

void append_records(std::vector<std::uint8_t>& images, std::vector<std::int32_t>& labels, GzFile& file,
                    std::span<const std::uint8_t> records) {
  std::int64_t offset = file.offset() - static_cast<std::int64_t>(records.size());
  for (; !records.empty(); records = records.subspan(kRecordBytes), offset += kRecordBytes) {
    if (records.size() < kRecordBytes) {
      file.refuse(offset, fmt::format("a record has {} bytes, not {}", records.size(), kRecordBytes));
    }
    const int label = records[0];
    if (label >= kCifarClasses) {
      file.refuse(offset, fmt::format("label {} is not one of 0 .. {}", label, kCifarClasses - 1));
    }
    const auto pixels = records.subspan(1, kImageBytes);
    images.insert(images.end(), pixels.begin(), pixels.end());
    labels.push_back(label);
  }
}

// The files of one set ("train", "t10k") in a folder, under any of their usual names. Throws an io error if one of the
// two is missing.
std::optional<IdxFiles> find_idx_files(const fs::path& folder, std::string_view set) {
  constexpr std::array<std::string_view, 2> kImageTypes{"idx3", "idx4"};
  constexpr std::array<std::string_view, 1> kLabelTypes{"idx1"};
  const auto images = find_file(folder, set, "images", kImageTypes);
  const auto labels = find_file(folder, set, "labels", kLabelTypes);
  if (!images && !labels) return std::nullopt;
  if (!images || !labels) {
    throw Error(ErrorSource::io,
                fmt::format("'{}' exists, but its {}-{}-ubyte (or .gz) is missing",
                            (images ? *images : *labels).string(), set, images ? "labels-idx1" : "images-idx3"));
  }
  return IdxFiles{*images, *labels};
}

// The files "<prefix>*.bin" and "<prefix>*.bin.gz" of a folder in the order of their numbers, each batch once.
std::vector<fs::path> find_cifar_files(const fs::path& folder, std::string_view prefix) {
  std::map<std::pair<std::int64_t, std::string>, fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    const bool compressed = name.ends_with(".bin.gz");
    if (!name.starts_with(prefix) || !(compressed || name.ends_with(".bin"))) continue;
    if (compressed) name.resize(name.size() - std::string_view(".gz").size());
    auto& path = found[{number_in(std::string_view(name).substr(prefix.size())), name}];
    if (path.empty() || !compressed) path = entry.path();
  }
  std::vector<fs::path> files;
  for (auto& [key, path] : found) files.push_back(std::move(path));
  return files;
}

// Empty if the folder has no class names.
std::vector<std::string> read_cifar_class_names(const fs::path& folder) {
  const auto path = folder / "batches.meta.txt";
  if (!fs::exists(path)) return {};
  GzFile file(path);
  std::vector<std::uint8_t> text(kMaxNameBytes);
  text.resize(file.read_some(text));
  std::vector<std::string> names(1);
  for (const std::uint8_t byte : text) {
    if (byte == '\n') {
      if (!names.back().empty()) names.emplace_back();
    } else if (byte != '\r') {
      names.back().push_back(static_cast<char>(byte));
    }
  }
  if (names.back().empty()) names.pop_back();
  if (names.size() != kCifarClasses) {
    file.refuse(0, fmt::format("there are {} class names, not {}", names.size(), kCifarClasses));
  }
  return names;
}

}  // namespace

LoadedSet read_idx(const IdxFiles& files) {
  GzFile image_file(files.images);
  ImageBlock block = read_images(image_file);
  GzFile label_file(files.labels);
  const std::vector<std::uint8_t> labels = read_labels(label_file, block, files.images);
  LoadedSet set;
  set.info.image = block.image;
  set.labels.assign(labels.begin(), labels.end());
  set.pixels = std::move(block.pixels);
  set.label_files.push_back({files.labels.string(), block.count});
  return set;
}

LoadedSet read_cifar(const std::vector<fs::path>& files) {
  LoadedSet set;
  set.info.image = Shape{kChannels, kSide, kSide};
  set.info.classes = kCifarClasses;
  std::vector<std::uint8_t> images;
  std::vector<std::uint8_t> buffer(kRecordsAtOnce * kRecordBytes);
  for (const auto& path : files) {
    GzFile file(path);
    if (file.is_raw()) {
      const std::int64_t pixels = file.most_bytes() / kRecordBytes * kImageBytes;
      images.reserve(images.size() + static_cast<std::size_t>(pixels));
    }
    while (const std::size_t got = file.read_some(buffer)) {
      append_records(images, set.labels, file, std::span(buffer).first(got));
    }
    if (file.offset() == 0) file.refuse(0, "the file contains no records");
    set.label_files.push_back({path.string(), file.offset() / kRecordBytes});
  }
  images.shrink_to_fit();
  set.labels.shrink_to_fit();
  set.pixels = std::move(images);
  return set;
}

std::optional<LoadedSet> read_binary_set(const fs::path& folder, std::initializer_list<std::string_view> idx_sets,
                                         std::string_view cifar_prefix) {
  for (const std::string_view set : idx_sets) {
    if (const auto files = find_idx_files(folder, set)) return read_idx(*files);
  }
  const auto files = find_cifar_files(folder, cifar_prefix);
  if (files.empty()) return std::nullopt;
  LoadedSet set = read_cifar(files);
  set.info.class_names = read_cifar_class_names(folder);
  return set;
}

}  // namespace tutti
