#include "idx_reader.hpp"

#include "tutti/base/error.hpp"

#include "gz_file.hpp"

#include <fmt/format.h>

#include <array>
#include <span>
#include <string>

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

}  // namespace tutti
