#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"

#include "image_codec.hpp"
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
#include <functional>
#include <initializer_list>
#include <map>
#include <source_location>
#include <span>
#include <sstream>
#include <string>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kZlibBufferBytes = 128 * 1024;
constexpr std::size_t kMaxPerCall = std::size_t{1} << 30;
constexpr std::size_t kLeastGrowth = 1024 * 1024;

// The next size of memory for content of unknown size.
std::size_t grown(std::size_t size) { return size + std::max(size / 8, kLeastGrowth); }

// A file read sequentially, gzip-compressed or raw as its first bytes say.
class GzFile {
 public:
  explicit GzFile(fs::path path) : path_(std::move(path)) {
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
    most_bytes_ = static_cast<std::int64_t>(size) * (is_raw_ ? 1 : kMaxDeflateRatio);
  }

  bool is_raw() const noexcept { return is_raw_; }
  // Bytes read so far, after decompression.
  std::int64_t offset() const noexcept { return offset_; }
  // Upper bound of the content's size: exact for a raw file; for a compressed one, at the best possible compression.
  std::int64_t most_bytes() const noexcept { return most_bytes_; }

  // Fills as much of the span as content is left; returns the number of bytes.
  std::size_t read_some(std::span<std::uint8_t> bytes) {
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

  // Fills the span; throws an input error if the content is too short.
  void read(std::span<std::uint8_t> bytes) {
    const std::int64_t begin = offset_;
    if (read_some(bytes) == bytes.size()) return;
    refuse(offset_, fmt::format("the content ends here; {} bytes were expected from byte {} on", bytes.size(), begin));
  }

  // Reads all `count` bytes that are left, to where `grow` has memory for so many; it keeps the earlier ones. Memory
  // grows only as content arrives, so that a false header costs none. Throws an input error if the content has another
  // size.
  void read_rest(std::int64_t count, const std::function<std::span<std::uint8_t>(std::size_t)>& grow) {
    const std::int64_t most = most_bytes_ - offset_;
    if (count > most) {
      refuse(offset_, fmt::format("the header announces {} more bytes, but the file has at most {}", count, most));
    }
    const auto target = static_cast<std::size_t>(count);
    for (std::size_t size = 0; size < target;) {
      const std::size_t next = is_raw_ ? target : std::min(target, grown(size));
      read(grow(next).subspan(size));
      size = next;
    }
    std::array<std::uint8_t, 1> extra{};
    const std::int64_t end = offset_;
    if (read_some(extra) != 0) refuse(end, "there is more content than the header promises");
  }

  // Throws an input error that names the file, the offset and the reason.
  [[noreturn]] void refuse(std::int64_t offset, const std::string& reason,
                           std::source_location where = std::source_location::current()) const {
    throw Error(ErrorSource::input,
                fmt::format("'{}' is malformed at byte {}{}: {}", path_.string(), offset,
                            is_raw_ ? "" : " of its uncompressed content", reason),
                where);
  }

 private:
  struct Close {
    void operator()(gzFile_s* file) const noexcept { gzclose(file); }
  };

  [[noreturn]] void fail() const {
    int status = Z_OK;
    const char* reason = gzerror(file_.get(), &status);
    if (status == Z_ERRNO) {
      throw Error(ErrorSource::io,
                  fmt::format("cannot read '{}' at byte {}: {}", path_.string(), offset_, std::strerror(errno)));
    }
    refuse(offset_, fmt::format("the compressed data are damaged or cut off ({})", reason));
  }

  fs::path path_;
  UniqueHandle<gzFile_s*, Close> file_;
  bool is_raw_ = false;
  std::int64_t most_bytes_ = 0;
  std::int64_t offset_ = 0;
};

constexpr std::uint32_t kLabelMagic = 0x00000801;
constexpr std::uint32_t kGrayMagic = 0x00000803;
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

// The file of one set ("train", "t10k") in a folder under any of its usual names; empty if there is none.
fs::path find_file(const fs::path& folder, std::string_view set, std::string_view content,
                   std::initializer_list<std::string_view> types) {
  for (const std::string_view type : types) {
    for (const std::string_view separator : {"-", "."}) {
      for (const std::string_view ending : {"", ".gz"}) {
        auto path = folder / fmt::format("{}-{}{}{}-ubyte{}", set, content, separator, type, ending);
        if (fs::exists(path)) return path;
      }
    }
  }
  return {};
}

constexpr int kCifarClasses = 10;
constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kSide = 32;
constexpr std::int64_t kImageBytes = kChannels * kSide * kSide;
constexpr std::int64_t kRecordBytes = 1 + kImageBytes;
constexpr std::size_t kMaxNameBytes = 4096;

// The first number in a name; 0 if there is none.
std::int64_t first_number_in(std::string_view text) {
  const auto first = std::find_if(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  std::int64_t number = 0;
  std::from_chars(first, text.end(), number);
  return number;
}

// The files "<prefix>*.bin" and "<prefix>*.bin.gz" of a folder in the order of their numbers, each batch once.
std::vector<fs::path> find_cifar_files(const fs::path& folder, std::string_view prefix) {
  std::map<std::pair<std::int64_t, std::string>, fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    const bool compressed = name.ends_with(".bin.gz");
    if (!name.starts_with(prefix) || !(compressed || name.ends_with(".bin"))) continue;
    if (compressed) name.resize(name.size() - std::string_view(".gz").size());
    auto& path = found[{first_number_in(std::string_view(name).substr(prefix.size())), name}];
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
  std::istringstream lines(std::string(text.begin(), text.end()));
  std::vector<std::string> names;
  for (std::string name; std::getline(lines, name);) {
    std::erase(name, '\r');
    if (!name.empty()) names.push_back(name);
  }
  if (names.size() != kCifarClasses) {
    file.refuse(0, fmt::format("there are {} class names, not {}", names.size(), kCifarClasses));
  }
  return names;
}

}  // namespace

LoadedSet read_idx(const fs::path& images, const fs::path& labels, GrowingMemory& block) {
  LoadedSet set;
  GzFile image_file(images);
  const std::uint32_t image_magic = read_word(image_file);
  if (image_magic != kGrayMagic && image_magic != kChannelMagic) {
    image_file.refuse(0, fmt::format("magic 0x{:08x} is not that of idx images (0x{:08x} or 0x{:08x})", image_magic,
                                     kGrayMagic, kChannelMagic));
  }
  std::int64_t bytes = 1;
  const auto extent = [&](std::string_view what) { return read_extent(image_file, what, bytes); };
  const std::int64_t count = extent("the number of images");
  const std::int64_t channels = image_magic == kChannelMagic ? extent("the number of channels") : 1;
  const std::int64_t height = extent("the height");
  set.info.image = Shape{channels, height, extent("the width")};
  Pixels pixels = add_pixels(block);
  image_file.read_rest(bytes, [&](std::size_t size) {
    pixels.resize(size);
    return pixels.bytes();
  });
  set.pixels = pixels;

  GzFile label_file(labels);
  const std::uint32_t label_magic = read_word(label_file);
  if (label_magic != kLabelMagic) {
    label_file.refuse(0, fmt::format("magic 0x{:08x} is not that of idx labels (0x{:08x})", label_magic, kLabelMagic));
  }
  const std::int64_t label_count = read_word(label_file);
  if (label_count != count) {
    label_file.refuse(kWordBytes,
                      fmt::format("{} labels do not match the {} images of '{}'", label_count, count, images.string()));
  }
  std::vector<std::uint8_t> read;
  label_file.read_rest(count, [&](std::size_t size) {
    read.resize(size);
    return std::span(read);
  });
  set.labels.assign(read.begin(), read.end());
  set.label_files.push_back({labels.string(), count});
  return set;
}

LoadedSet read_cifar(const std::vector<fs::path>& files, GrowingMemory& block) {
  LoadedSet set;
  set.info.image = Shape{kChannels, kSide, kSide};
  set.info.classes = kCifarClasses;
  Pixels pixels = add_pixels(block);
  std::size_t filled = 0;
  std::array<std::uint8_t, kRecordBytes> record{};
  for (const auto& path : files) {
    GzFile file(path);
    if (file.is_raw()) {
      pixels.resize(filled + static_cast<std::size_t>(file.most_bytes() / kRecordBytes * kImageBytes));
    }
    while (const std::size_t got = file.read_some(record)) {
      const std::int64_t offset = file.offset() - static_cast<std::int64_t>(got);
      if (got < record.size()) file.refuse(offset, fmt::format("a record has {} bytes, not {}", got, kRecordBytes));
      const int label = record[0];
      if (label >= kCifarClasses) {
        file.refuse(offset, fmt::format("label {} is not one of 0 .. {}", label, kCifarClasses - 1));
      }
      if (filled + kImageBytes > pixels.size) pixels.resize(grown(filled));
      std::copy(record.begin() + 1, record.end(), pixels.bytes().data() + filled);
      filled += kImageBytes;
      set.labels.push_back(label);
    }
    if (file.offset() == 0) file.refuse(0, "the file contains no records");
    set.label_files.push_back({path.string(), file.offset() / kRecordBytes});
  }
  pixels.resize(filled);
  set.pixels = pixels;
  return set;
}

std::optional<LoadedSet> read_binary_set(const fs::path& folder, std::initializer_list<std::string_view> idx_sets,
                                         std::string_view cifar_prefix, GrowingMemory& block) {
  for (const std::string_view set : idx_sets) {
    const fs::path images = find_file(folder, set, "images", {"idx3", "idx4"});
    const fs::path labels = find_file(folder, set, "labels", {"idx1"});
    if (!images.empty() && !labels.empty()) return read_idx(images, labels, block);
    if (images.empty() && labels.empty()) continue;
    throw Error(ErrorSource::io, fmt::format("'{}' exists, but its {}-{}-ubyte (or .gz) is missing",
                                             (images.empty() ? labels : images).string(), set,
                                             images.empty() ? "images-idx3" : "labels-idx1"));
  }
  const auto files = find_cifar_files(folder, cifar_prefix);
  if (files.empty()) return std::nullopt;
  LoadedSet set = read_cifar(files, block);
  set.info.class_names = read_cifar_class_names(folder);
  return set;
}

}  // namespace tutti
