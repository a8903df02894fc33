#include "binary_formats.hpp"

#include "tutti/base/error.hpp"

#include "gz_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

namespace tutti {
namespace {

constexpr std::uint32_t kLabelMagic = 0x00000801;
constexpr std::uint32_t kGreyMagic = 0x00000803;
constexpr std::uint32_t kChannelMagic = 0x00000804;
constexpr std::int64_t kWordBytes = 4;

std::uint32_t read_word(GzFile& file) {
  std::array<std::uint8_t, kWordBytes> bytes{};
  file.read(bytes);
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
}

// An extent that together with the product so far does not promise more than the file can hold.
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

std::vector<std::uint8_t> read_labels(GzFile& file, const ImageBlock& block, const std::filesystem::path& images) {
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

std::optional<std::filesystem::path> find_file(const std::filesystem::path& folder, std::string_view set,
                                               std::string_view content, std::span<const std::string_view> types) {
  for (const std::string_view type : types) {
    for (const std::string_view separator : {"-", "."}) {
      for (const std::string_view ending : {"", ".gz"}) {
        auto path = folder / fmt::format("{}-{}{}{}-ubyte{}", set, content, separator, type, ending);
        if (std::filesystem::exists(path)) return path;
      }
    }
  }
  return std::nullopt;
}

constexpr std::int64_t kChannels = 3;
constexpr std::int64_t kSide = 32;
constexpr std::int64_t kImageBytes = kChannels * kSide * kSide;
constexpr std::int64_t kRecordBytes = 1 + kImageBytes;
constexpr std::size_t kRecordsAtOnce = 16;
constexpr std::size_t kMostNameBytes = 4096;

std::int64_t number_in(std::string_view text) {
  const auto first = std::find_if(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  std::int64_t number = 0;
  std::from_chars(first, text.end(), number);
  return number;
}

void append_records(LabelledImages& all, GzFile& file, std::span<const std::uint8_t> records) {
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
    all.images.insert(all.images.end(), pixels.begin(), pixels.end());
    all.labels.push_back(label);
  }
}

}  // namespace

std::optional<IdxFiles> find_idx_files(const std::filesystem::path& folder, std::string_view set) {
  constexpr std::array<std::string_view, 2> kImageTypes{"idx3", "idx4"};
  constexpr std::array<std::string_view, 1> kLabelTypes{"idx1"};
  const auto images = find_file(folder, set, "images", kImageTypes);
  const auto labels = find_file(folder, set, "labels", kLabelTypes);
  if (!images && !labels) return std::nullopt;
  if (!images || !labels) {
    throw Error(ErrorSource::io,
                fmt::format("'{}' is there, but its {}-{}-ubyte (or .gz) is missing beside it",
                            (images ? *images : *labels).string(), set, images ? "labels-idx1" : "images-idx3"));
  }
  return IdxFiles{*images, *labels};
}

LabelledImages read_idx(const IdxFiles& files) {
  GzFile image_file(files.images);
  ImageBlock block = read_images(image_file);
  GzFile label_file(files.labels);
  const std::vector<std::uint8_t> labels = read_labels(label_file, block, files.images);
  return {block.image, std::move(block.pixels), {labels.begin(), labels.end()}, {{files.labels.string(), block.count}}};
}

std::vector<std::filesystem::path> find_cifar_files(const std::filesystem::path& folder, std::string_view prefix) {
  std::map<std::pair<std::int64_t, std::string>, std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string name = entry.path().filename().string();
    const bool compressed = name.ends_with(".bin.gz");
    if (!name.starts_with(prefix) || !(compressed || name.ends_with(".bin"))) continue;
    if (compressed) name.resize(name.size() - std::string_view(".gz").size());
    auto& path = found[{number_in(std::string_view(name).substr(prefix.size())), name}];
    if (path.empty() || !compressed) path = entry.path();
  }
  std::vector<std::filesystem::path> files;
  for (auto& [key, path] : found) files.push_back(std::move(path));
  return files;
}

LabelledImages read_cifar(const std::vector<std::filesystem::path>& files) {
  LabelledImages all{Shape{kChannels, kSide, kSide}, {}, {}, {}};
  std::vector<std::uint8_t> buffer(kRecordsAtOnce * kRecordBytes);
  for (const auto& path : files) {
    GzFile file(path);
    if (file.is_raw()) {
      const std::int64_t pixels = file.most_bytes() / kRecordBytes * kImageBytes;
      all.images.reserve(all.images.size() + static_cast<std::size_t>(pixels));
    }
    while (const std::size_t got = file.read_some(buffer)) append_records(all, file, std::span(buffer).first(got));
    if (file.offset() == 0) file.refuse(0, "the file holds no records");
    all.label_files.push_back({path.string(), file.offset() / kRecordBytes});
  }
  all.images.shrink_to_fit();
  all.labels.shrink_to_fit();
  return all;
}

std::vector<std::string> read_cifar_class_names(const std::filesystem::path& folder) {
  const auto path = folder / "batches.meta.txt";
  if (!std::filesystem::exists(path)) return {};
  GzFile file(path);
  std::vector<std::uint8_t> text(kMostNameBytes);
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

}  // namespace tutti
