#include "lazy_datasets.hpp"

#include "tutti/base/checksums.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/seal.hpp"

#include "image_codec.hpp"
#include "sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tutti {
namespace {

class ImageFolder final : public EncodedDataset {
 public:
  ImageFolder(LazySet set, std::filesystem::path folder, bool applies_exif)
      : EncodedDataset(std::move(set)), folder_(std::move(folder)), applies_exif_(applies_exif) {}

  ImageFile image_file(std::int64_t sample, std::vector<std::byte>& buffer) const override {
    std::string path = file_of(sample);
    buffer = read_image_bytes(path);
    return {.bytes = {reinterpret_cast<const std::uint8_t*>(buffer.data()), buffer.size()},
            .name = std::move(path),
            .applies_exif = applies_exif_,
            .remedy = "--skip-bad-images leaves such files out"};
  }
  std::string file_of(std::int64_t sample) const override { return (folder_ / name_of(sample)).string(); }

 private:
  std::filesystem::path folder_;
  bool applies_exif_;
};

ArrayFile open_sealed(const std::string& path) {
  check_seal(path);
  return ArrayFile(path);
}

// Images in a data file (tutti/data/data_file.hpp).
class StoredDataset final : public LazyDataset {
 public:
  StoredDataset(LazySet set, StoredRows stored)
      : LazyDataset(std::move(set)), stored_(std::move(stored)), file_(open_sealed(stored_.path)) {
    const std::string& array = stored_.array;
    if (file_.shape(array).without_first() != info().image ||
        file_.read_text(array.substr(0, array.rfind('/')) + "/digest") != digest_text(stored_.digest)) {
      throw Error(ErrorSource::input,
                  fmt::format("'{}' has changed since it was opened: start again, and do not change it during a run",
                              file_.path()));
    }
  }

  // Consecutive rows are read with one call.
  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override {
    const auto image_bytes = static_cast<std::size_t>(info().image.elements());
    batch.images.clear();
    batch.labels.clear();
    std::size_t runs = 0;
    for (std::size_t begin = 0, end = 0; begin < samples.size(); begin = end) {
      const auto row_of = [&](std::size_t i) { return stored_.rows[info().index_of(samples[i])]; };
      const std::int64_t first = row_of(begin);
      const auto next_row = [&] { return first + static_cast<std::int64_t>(end - begin); };
      for (end = begin + 1; end < samples.size() && row_of(end) == next_row();) ++end;
      batch.buffers.resize(std::max(batch.buffers.size(), runs + 1));
      auto& buffer = batch.buffers[runs++];
      buffer.resize((end - begin) * image_bytes);
      file_.read_rows(stored_.array, first, static_cast<std::int64_t>(end - begin), buffer);
      for (std::size_t i = begin; i < end; ++i) {
        const auto image = std::span(buffer).subspan((i - begin) * image_bytes, image_bytes);
        verify(static_cast<std::size_t>(samples[i]), image);
        batch.images.push_back({image.data(), info().image});
        batch.labels.push_back(labels()[static_cast<std::size_t>(samples[i])]);
      }
    }
  }

 private:
  // Throws an input error unless the sample's image has the stored checksum.
  void verify(std::size_t sample, std::span<const std::uint8_t> image) const {
    if (stored_.checksums.empty()) return;
    const std::uint32_t found = crc32c(std::as_bytes(image));
    const auto expected = static_cast<std::uint32_t>(stored_.checksums[sample]);
    if (found == expected) return;
    throw Error(ErrorSource::input,
                fmt::format("'{}' is damaged: row {} of {} has the checksum {:08x} instead of {:08x}; restore the file "
                            "from a copy, or {} data convert its source again",
                            file_.path(), stored_.rows[sample], stored_.array, found, expected, program_call()));
  }

  StoredRows stored_;
  ArrayFile file_;
};

}  // namespace

LazyDataset::LazyDataset(LazySet set) : set_(std::move(set)) {
  set_.info.class_samples = count_classes(set_.info, set_.labels);
}

void EncodedDataset::read(std::span<const std::int64_t> samples, SampleBatch& batch) const {
  batch.images.clear();
  batch.labels.clear();
  batch.buffers.resize(std::max(batch.buffers.size(), samples.size()));
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const ImageFile file = image_file(samples[i], bytes);
    const Shape shape = decode_image(file, info().image[0], batch.buffers[i]);
    check_image_shape(info(), file, shape);
    batch.images.push_back({batch.buffers[i].data(), shape});
    batch.labels.push_back(labels()[info().index_of(samples[i])]);
  }
}

void check_image_shape(const DatasetInfo& info, const ImageFile& file, const Shape& found) {
  if (info.sizes_differ() || found == info.image) return;
  throw Error(ErrorSource::input, fmt::format("the image '{}' is {} now, but was {} when the set was opened: "
                                              "start again, and do not change files during a run",
                                              file.name, found.text(), info.image.text()));
}

std::unique_ptr<Dataset> make_image_folder(LazySet set, std::filesystem::path folder, bool applies_exif) {
  return std::make_unique<ImageFolder>(std::move(set), std::move(folder), applies_exif);
}

std::unique_ptr<Dataset> make_stored_dataset(LazySet set, StoredRows stored) {
  return std::make_unique<StoredDataset>(std::move(set), std::move(stored));
}

}  // namespace tutti
