#include "lazy_datasets.hpp"

#include "tutti/base/checksums.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/seal.hpp"

#include "sources.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tutti {
namespace {

// A data set whose images are read from files lazily.
class LazyDataset : public Dataset {
 public:
  explicit LazyDataset(LazySet set) : set_(std::move(set)) {
    set_.info.class_samples = count_classes(set_.info, set_.labels);
  }
  const DatasetInfo& info() const override { return set_.info; }
  std::string name_of(std::int64_t sample) const override { return set_.names.of(info().index_of(sample)); }
  std::size_t resident_bytes() const override { return 0; }
  std::uint64_t digest() const override { return set_.digest; }
  std::span<const std::int32_t> labels() const override { return set_.labels; }

 protected:
  std::int32_t label(std::size_t sample) const { return set_.labels[sample]; }

 private:
  LazySet set_;
};

class ImageFolder final : public LazyDataset {
 public:
  ImageFolder(LazySet set, PackedImageFiles files) : LazyDataset(std::move(set)), files_(std::move(files)) {}

  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override {
    batch.images.clear();
    batch.labels.clear();
    batch.buffers.resize(std::max(batch.buffers.size(), samples.size()));
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::string path = file_of(samples[i]);
      const Shape shape = read_image(path, info().image[0], files_.applies_exif, batch.buffers[i]);
      if (!info().sizes_differ() && shape != info().image) {
        throw Error(ErrorSource::input, fmt::format("the image '{}' is {} now, but was {} when the set was opened: "
                                                    "start again, and do not change files during a run",
                                                    path, shape.text(), info().image.text()));
      }
      batch.images.push_back({batch.buffers[i].data(), shape});
      batch.labels.push_back(label(info().index_of(samples[i])));
    }
  }

  std::string file_of(std::int64_t sample) const override { return (files_.folder / name_of(sample)).string(); }

 private:
  PackedImageFiles files_;
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
        batch.labels.push_back(label(static_cast<std::size_t>(samples[i])));
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

std::unique_ptr<Dataset> make_image_folder(LazySet set, PackedImageFiles files) {
  return std::make_unique<ImageFolder>(std::move(set), std::move(files));
}

std::unique_ptr<Dataset> make_stored_dataset(LazySet set, StoredRows stored) {
  return std::make_unique<StoredDataset>(std::move(set), std::move(stored));
}

}  // namespace tutti
