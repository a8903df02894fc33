#include "tutti/base/checksums.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/data/open_data.hpp"
#include "tutti/storage/array_file.hpp"

#include "image_files.hpp"
#include "loaded_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <type_traits>
#include <utility>

namespace tutti {
namespace {

constexpr std::size_t kAlignment = 8;
constexpr std::size_t kRoomForWords = 4096;

std::size_t padded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The names of image files, one after another, and where each ends.
struct FileNames {
  std::string folder;
  std::span<const char> letters;
  std::span<const std::uint64_t> ends;
  bool upright = true;  // as ImageFiles has it
};

// Rows of an array in a data file.
struct StoredRows {
  std::string path;
  std::string array;
  std::uint64_t digest = 0;                 // as the file gives it
  std::span<const std::int64_t> rows;       // by sample
  std::span<const std::int32_t> checksums;  // by sample; empty in a file of an early version
};

// A set as it lies in a block. Spans are borrowed.
struct BlockSet {
  DatasetInfo info;
  std::span<const std::int32_t> labels;
  std::uint64_t digest = 0;
  std::variant<std::span<const std::uint8_t>, FileNames, StoredRows> pixels;
};

// What a block holds of each record, in this order. A block that is written and one that is read both call these.
template <class Block>
void transfer(Block& block, SkippedImage& skipped) {
  block(skipped.before, skipped.name, skipped.problem);
}
template <class Block>
void transfer(Block& block, FileContents& contents) {
  block(contents.sampled, contents.sample, contents.whole);
}
template <class Block>
void transfer(Block& block, ChannelStatistics& statistics) {
  block(statistics.mean, statistics.deviation);
}
template <class Block>
void transfer(Block& block, DatasetInfo& info) {
  block(info.name, info.image, info.classes, info.class_names, info.samples, info.statistics, info.labelled,
        info.skipped, info.contents);
}
template <class Block>
void transfer(Block& block, FileNames& names) {
  block(names.folder, names.letters, names.ends, names.upright);
}
template <class Block>
void transfer(Block& block, StoredRows& stored) {
  block(stored.path, stored.array, stored.digest, stored.rows, stored.checksums);
}
template <class Block>
void transfer(Block& block, BlockSet& set) {
  block(set.info, set.labels, set.digest, set.pixels);
}

template <class T>
concept Number = std::is_arithmetic_v<T>;

// Every item begins at a multiple of 8 bytes.
class BlockWriter {
 public:
  explicit BlockWriter(std::size_t expected_bytes) { bytes_.reserve(expected_bytes); }

  template <class... Items>
  void operator()(Items&&... items) {
    (add(items), ...);
  }
  std::vector<std::byte> finish() { return std::move(bytes_); }

 private:
  void add(Number auto value) { append(std::as_bytes(std::span(&value, 1))); }
  template <class T>
  void add(std::span<const T> values) {
    add(values.size());
    append(std::as_bytes(values));
  }
  void add(std::string& text) { add(std::span<const char>(text)); }
  void add(Shape& shape) { add(shape.extents()); }
  template <class T>
  void add(std::vector<T>& all) {
    add(all.size());
    for (T& one : all) add(one);
  }
  template <class T>
  void add(std::optional<T>& value) {
    add(value.has_value());
    if (value) add(*value);
  }
  template <class... T>
  void add(std::variant<T...>& value) {
    add(value.index());
    std::visit([this](auto& chosen) { add(chosen); }, value);
  }
  template <class T>
  requires std::is_class_v<T>
  void add(T& record) { transfer(*this, record); }

  void append(std::span<const std::byte> more) {
    bytes_.insert(bytes_.end(), more.begin(), more.end());
    bytes_.resize(padded(bytes_.size()));
  }

  std::vector<std::byte> bytes_;
};

class BlockReader {
 public:
  explicit BlockReader(std::span<const std::byte> block) : rest_(block) {}

  template <class... Items>
  void operator()(Items&... items) {
    (get(items), ...);
  }

 private:
  template <Number T>
  void get(T& value) {
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
  }
  template <class T>
  void get(std::span<const T>& values) {
    const auto count = get_size();
    values = {reinterpret_cast<const T*>(take(count * sizeof(T)).data()), count};
  }
  void get(std::string& text) {
    std::span<const char> letters;
    get(letters);
    text.assign(letters.begin(), letters.end());
  }
  void get(Shape& shape) {
    std::span<const std::int64_t> extents;
    get(extents);
    shape = Shape(extents);
  }
  template <class T>
  void get(std::vector<T>& all) {
    all.resize(get_size());
    for (T& one : all) get(one);
  }
  template <class T>
  void get(std::optional<T>& value) {
    bool is_there = false;
    get(is_there);
    if (is_there) get(value.emplace());
  }
  void get(decltype(BlockSet::pixels)& pixels) {
    const auto kind = get_size();
    if (kind == 1) pixels = FileNames{};
    if (kind == 2) pixels = StoredRows{};
    std::visit([this](auto& chosen) { get(chosen); }, pixels);
  }
  template <class T>
  requires std::is_class_v<T>
  void get(T& record) { transfer(*this, record); }

  std::size_t get_size() {
    std::size_t size = 0;
    get(size);
    return size;
  }
  std::span<const std::byte> take(std::size_t bytes) {
    if (padded(bytes) > rest_.size()) throw Error(ErrorSource::internal, "a data block ends too early");
    const auto taken = rest_.first(bytes);
    rest_ = rest_.subspan(padded(bytes));
    return taken;
  }

  std::span<const std::byte> rest_;
};

void write_set(BlockWriter& write, const LoadedSet& set) {
  BlockSet written{set.info, set.labels, digest_of(set), {}};
  written.info.samples = std::ssize(set.labels);
  std::string letters;
  std::vector<std::uint64_t> ends;
  if (const auto* files = std::get_if<ImageFiles>(&set.pixels)) {
    for (const std::string& name : files->names) {
      letters += name;
      ends.push_back(letters.size());
    }
    written.pixels = FileNames{files->folder.string(), letters, ends, files->upright};
  } else if (const auto* stored = std::get_if<StoredImages>(&set.pixels)) {
    written.pixels = StoredRows{stored->path, stored->array, stored->digest, stored->rows, stored->checksums};
  } else {
    written.pixels = std::span<const std::uint8_t>(std::get<std::vector<std::uint8_t>>(set.pixels));
  }
  write(written);
}

// A set whose images are read from files when they are asked for.
class FileSet : public Dataset {
 public:
  explicit FileSet(const BlockSet& set) : info_(set.info), labels_(set.labels), digest_(set.digest) {
    info_.class_samples = count_classes(info_, labels_);
  }
  const DatasetInfo& info() const override { return info_; }
  std::size_t resident_bytes() const override { return 0; }
  std::uint64_t digest() const override { return digest_; }

 protected:
  std::int32_t label(std::size_t sample) const { return labels_[sample]; }

 private:
  DatasetInfo info_;
  std::span<const std::int32_t> labels_;
  std::uint64_t digest_;
};

class ImageFolder final : public FileSet {
 public:
  ImageFolder(const BlockSet& set, FileNames names) : FileSet(set), names_(std::move(names)) {}

  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override {
    batch.images.clear();
    batch.labels.clear();
    batch.room.resize(std::max(batch.room.size(), samples.size()));
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::string path = file_of(samples[i]);
      const Shape shape = read_image(path, info().image[0], names_.upright, batch.room[i]);
      if (!info().sizes_differ() && shape != info().image) {
        throw Error(ErrorSource::input, fmt::format("the image '{}' is {} now, but was {} when the set was opened",
                                                    path, shape.text(), info().image.text()));
      }
      batch.images.push_back({batch.room[i].data(), shape});
      batch.labels.push_back(label(info().index_of(samples[i])));
    }
  }

  std::string file_of(std::int64_t sample) const override {
    const std::size_t index = info().index_of(sample);
    const std::uint64_t begin = index == 0 ? 0 : names_.ends[index - 1];
    const auto name = names_.letters.subspan(begin, names_.ends[index] - begin);
    return (std::filesystem::path(names_.folder) / std::string(name.begin(), name.end())).string();
  }

 private:
  FileNames names_;
};

ArrayFile open_sealed(const std::string& path) {
  check_seal(path);
  return ArrayFile(path);
}

// Images in a data file (tutti/data/data_file.hpp).
class StoredSet final : public FileSet {
 public:
  StoredSet(const BlockSet& set, StoredRows stored)
      : FileSet(set), stored_(std::move(stored)), file_(open_sealed(stored_.path)) {
    const std::string group = stored_.array.substr(0, stored_.array.rfind('/'));
    if (file_.shape(stored_.array).without_first() != info().image ||
        file_.read_text(group + "/digest") != digest_text(stored_.digest)) {
      throw Error(ErrorSource::input, fmt::format("'{}' has changed since it was looked at", stored_.path));
    }
  }

  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override;

 private:
  // Throws an input error unless the image that was read for the sample has its checksum.
  void verify(std::size_t sample, std::span<const std::uint8_t> image) const;

  StoredRows stored_;
  ArrayFile file_;
};

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
  const auto image_bytes = static_cast<std::size_t>(info().image.elements());
  batch.images.clear();
  batch.labels.clear();
  std::size_t runs = 0;
  for (std::size_t begin = 0, end = 0; begin < samples.size(); begin = end) {
    const auto row_of = [&](std::size_t i) { return stored_.rows[info().index_of(samples[i])]; };
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
      batch.images.push_back({image.data(), info().image});
      batch.labels.push_back(label(static_cast<std::size_t>(samples[i])));
    }
  }
}

std::unique_ptr<Dataset> open_set(BlockReader& read) {
  BlockSet set;
  read(set);
  if (auto* const names = std::get_if<FileNames>(&set.pixels)) {
    return std::make_unique<ImageFolder>(set, std::move(*names));
  }
  if (auto* const stored = std::get_if<StoredRows>(&set.pixels)) {
    return std::make_unique<StoredSet>(set, std::move(*stored));
  }
  return std::make_unique<MemoryDataset>(std::move(set.info), std::get<0>(set.pixels), set.labels, set.digest);
}

std::size_t bytes_of(const LoadedSet& set) {
  const auto* images = std::get_if<std::vector<std::uint8_t>>(&set.pixels);
  return (images == nullptr ? 0 : images->size()) + set.labels.size() * sizeof(std::int32_t);
}

}  // namespace

std::vector<std::byte> write_block(LoadedPair pair) {
  BlockWriter write(kRoomForWords + bytes_of(pair.train) + (pair.test ? bytes_of(*pair.test) : 0));
  write(pair.notes, pair.test.has_value());
  write_set(write, pair.train);
  pair.train = {};
  if (pair.test) write_set(write, *pair.test);
  return write.finish();
}

DataPair open_loaded(std::span<const std::byte> block) {
  BlockReader read(block);
  DataPair pair;
  bool has_test = false;
  read(pair.notes, has_test);
  pair.train = open_set(read);
  if (has_test) pair.test = open_set(read);
  return pair;
}

}  // namespace tutti
