#include "stored_set.hpp"

#include "tutti/base/crc32c.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/program_name.hpp"
#include "tutti/storage/row_file.hpp"

#include "class_counts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

ArrayFile open_sealed(const std::string& path) {
  check_seal(path);
  return ArrayFile(path);
}

}  // namespace

StoredSet::StoredSet(DatasetInfo info, StoredRows stored, std::span<const std::int32_t> labels, std::uint64_t digest)
    : info_(std::move(info)),
      stored_(std::move(stored)),
      labels_(labels),
      digest_(digest),
      file_(open_sealed(stored_.path)) {
  info_.class_samples = count_classes(info_, labels_);
  const std::string group = stored_.array.substr(0, stored_.array.rfind('/'));
  if (file_.shape(stored_.array).without_first() != info_.image ||
      file_.read_text(group + "/digest") != digest_text(stored_.digest)) {
    throw Error(ErrorSource::input, fmt::format("'{}' has changed since it was looked at", stored_.path));
  }
}

void StoredSet::verify(std::size_t sample, std::span<const std::uint8_t> image) const {
  if (stored_.checksums.empty()) return;
  const std::uint32_t found = crc32c(std::as_bytes(image));
  const auto expected = static_cast<std::uint32_t>(stored_.checksums[sample]);
  if (found == expected) return;
  throw Error(ErrorSource::input,
              fmt::format("'{}' is damaged: row {} of {} has the checksum {:08x} instead of {:08x}; restore the file "
                          "from a copy, or {} data convert its source again",
                          stored_.path, stored_.rows[sample], stored_.array, found, expected, program_call()));
}

// Rows that follow one another are read at once.
void StoredSet::read(std::span<const std::int64_t> samples, SampleBatch& batch) const {
  const auto image_bytes = static_cast<std::size_t>(info_.image.elements());
  batch.images.clear();
  batch.labels.clear();
  std::size_t runs = 0;
  for (std::size_t begin = 0, end = 0; begin < samples.size(); begin = end) {
    const auto row_of = [&](std::size_t i) { return stored_.rows[info_.index_of(samples[i])]; };
    const std::int64_t first = row_of(begin);
    const auto next_row = [&] { return first + static_cast<std::int64_t>(end - begin); };
    for (end = begin + 1; end < samples.size() && row_of(end) == next_row();) ++end;
    batch.room.resize(std::max(batch.room.size(), runs + 1));
    auto& room = batch.room[runs++];
    room.resize((end - begin) * image_bytes);
    file_.read_rows(stored_.array, first, static_cast<std::int64_t>(end - begin), room);
    for (std::size_t i = begin; i < end; ++i) {
      const auto image = std::span(room).subspan((i - begin) * image_bytes, image_bytes);
      verify(static_cast<std::size_t>(samples[i]), image);
      batch.images.push_back({image.data(), info_.image});
      batch.labels.push_back(labels_[static_cast<std::size_t>(samples[i])]);
    }
  }
}

}  // namespace tutti
