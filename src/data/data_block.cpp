#include "data_block.hpp"

#include "tutti/base/checksums.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/storage/row_file.hpp"

#include "image_folders.hpp"
#include "loaded_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti {
namespace {

constexpr std::size_t kAlignment = 8;
constexpr std::size_t kRoomForWords = 4096;

std::size_t padded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class BlockWriter {
 public:
  explicit BlockWriter(std::size_t expected_bytes) { bytes_.reserve(expected_bytes); }

  void number(std::uint64_t value) { append(std::as_bytes(std::span(&value, 1))); }
  template <class T>
  void array(std::span<const T> values) {
    number(values.size());
    append(std::as_bytes(values));
  }
  void text(const std::string& words) { array(std::span<const char>(words)); }
  void texts(const std::vector<std::string>& all) {
    number(all.size());
    for (const std::string& one : all) text(one);
  }
  std::vector<std::byte> finish() { return std::move(bytes_); }

 private:
  void append(std::span<const std::byte> more) {
    bytes_.insert(bytes_.end(), more.begin(), more.end());
    bytes_.resize(padded(bytes_.size()));
  }

  std::vector<std::byte> bytes_;
};

class BlockReader {
 public:
  explicit BlockReader(std::span<const std::byte> block) : rest_(block) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  template <class T>
  std::span<const T> array() {
    const auto count = static_cast<std::size_t>(number());
    return {reinterpret_cast<const T*>(take(count * sizeof(T)).data()), count};
  }
  std::string text() {
    const auto letters = array<char>();
    return {letters.begin(), letters.end()};
  }
  std::vector<std::string> texts() {
    std::vector<std::string> all(static_cast<std::size_t>(number()));
    for (std::string& one : all) one = text();
    return all;
  }

 private:
  std::span<const std::byte> take(std::size_t bytes) {
    if (padded(bytes) > rest_.size()) throw Error(ErrorSource::internal, "a data block ends too early");
    const auto taken = rest_.first(bytes);
    rest_ = rest_.subspan(padded(bytes));
    return taken;
  }

  std::span<const std::byte> rest_;
};

void write_files(BlockWriter& writer, const ImageFiles& files) {
  std::string letters;
  std::vector<std::uint64_t> ends;
  for (const std::string& name : files.names) {
    letters += name;
    ends.push_back(letters.size());
  }
  writer.text(files.folder.string());
  writer.text(letters);
  writer.array(std::span<const std::uint64_t>(ends));
  writer.number(files.upright ? 1 : 0);
}

void write_contents(BlockWriter& writer, const std::optional<FileContents>& contents) {
  writer.number(contents ? 1 : 0);
  if (!contents) return;
  writer.number(static_cast<std::uint64_t>(contents->sampled));
  writer.number(contents->sample);
  writer.number(contents->whole ? 1 : 0);
  writer.number(contents->whole.value_or(0));
}

std::optional<FileContents> read_contents(BlockReader& reader) {
  if (reader.number() == 0) return std::nullopt;
  FileContents contents{.sampled = static_cast<std::int64_t>(reader.number()), .sample = reader.number()};
  const bool has_whole = reader.number() != 0;
  const std::uint64_t whole = reader.number();
  if (has_whole) contents.whole = whole;
  return contents;
}

void write_set(BlockWriter& writer, const LoadedSet& set) {
  writer.text(set.info.name);
  writer.array(set.info.image.extents());
  writer.number(static_cast<std::uint64_t>(set.info.classes));
  writer.texts(set.info.class_names);
  writer.number(set.info.labelled ? 1 : 0);
  writer.number(set.info.skipped.size());
  for (const SkippedImage& skipped : set.info.skipped) {
    writer.number(static_cast<std::uint64_t>(skipped.before));
    writer.text(skipped.name);
    writer.text(skipped.problem);
  }
  write_contents(writer, set.info.contents);
  writer.array(std::span<const double>(set.info.statistics.mean));
  writer.array(std::span<const double>(set.info.statistics.deviation));
  writer.array(std::span<const std::int32_t>(set.labels));
  writer.number(digest_of(set));
  writer.number(set.pixels.index());
  if (const auto* files = std::get_if<ImageFiles>(&set.pixels)) {
    write_files(writer, *files);
  } else if (const auto* stored = std::get_if<StoredImages>(&set.pixels)) {
    writer.text(stored->path);
    writer.text(stored->array);
    writer.number(stored->digest);
    writer.array(std::span<const std::int64_t>(stored->rows));
    writer.array(std::span<const std::int32_t>(stored->checksums));
  } else {
    writer.array(std::span<const std::uint8_t>(std::get<std::vector<std::uint8_t>>(set.pixels)));
  }
}

std::unique_ptr<Dataset> read_set(BlockReader& reader) {
  DatasetInfo info;
  info.name = reader.text();
  info.image = Shape(reader.array<std::int64_t>());
  info.classes = static_cast<int>(reader.number());
  info.class_names = reader.texts();
  info.labelled = reader.number() != 0;
  info.skipped.resize(static_cast<std::size_t>(reader.number()));
  for (SkippedImage& skipped : info.skipped) {
    skipped = {.before = static_cast<std::int64_t>(reader.number()), .name = reader.text(), .problem = reader.text()};
  }
  info.contents = read_contents(reader);
  const auto mean = reader.array<double>();
  const auto deviation = reader.array<double>();
  info.statistics = {{mean.begin(), mean.end()}, {deviation.begin(), deviation.end()}};
  const auto labels = reader.array<std::int32_t>();
  info.samples = static_cast<std::int64_t>(labels.size());
  const std::uint64_t digest = reader.number();
  const std::uint64_t kind = reader.number();
  if (kind == 0) {
    return std::make_unique<MemoryDataset>(std::move(info), reader.array<std::uint8_t>(), labels, digest);
  }
  std::string place = reader.text();
  if (kind == 1) {
    const auto letters = reader.array<char>();
    const auto ends = reader.array<std::uint64_t>();
    const FileNames names{letters, ends, reader.number() != 0};
    return std::make_unique<ImageFolder>(std::move(info), std::move(place), names, labels, digest);
  }
  std::string array = reader.text();
  const std::uint64_t digest_in_file = reader.number();
  const auto rows = reader.array<std::int64_t>();
  StoredRows stored{std::move(place), std::move(array), digest_in_file, rows, reader.array<std::int32_t>()};
  return std::make_unique<StoredSet>(std::move(info), std::move(stored), labels, digest);
}

std::size_t bytes_of(const LoadedSet& set) {
  const auto* images = std::get_if<std::vector<std::uint8_t>>(&set.pixels);
  return (images == nullptr ? 0 : images->size()) + set.labels.size() * sizeof(std::int32_t);
}

ArrayFile open_sealed(const std::string& path) {
  check_seal(path);
  return ArrayFile(path);
}

}  // namespace

std::vector<std::byte> write_block(LoadedPair pair) {
  BlockWriter writer(kRoomForWords + bytes_of(pair.train) + (pair.test ? bytes_of(*pair.test) : 0));
  writer.texts(pair.notes);
  writer.number(pair.test ? 2 : 1);
  write_set(writer, pair.train);
  pair.train = {};
  if (pair.test) write_set(writer, *pair.test);
  return writer.finish();
}

DataPair read_block(std::span<const std::byte> block) {
  BlockReader reader(block);
  DataPair pair;
  pair.notes = reader.texts();
  const std::uint64_t sets = reader.number();
  pair.train = read_set(reader);
  if (sets == 2) pair.test = read_set(reader);
  return pair;
}

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
