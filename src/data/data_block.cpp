#include "tutti/base/checksums.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/data/open_data.hpp"
#include "tutti/storage/array_file.hpp"

#include "sources.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

// A block is a list of arrays, each preceded by its length and aligned to 8 bytes. Each data set begins with a
// MessagePack array of its metadata. Arrays that may be large follow, so that all ranks of a host share them.

template <class T>
struct nlohmann::adl_serializer<std::optional<T>> {
  static void to_json(json& to, const std::optional<T>& from) { to = from ? json(*from) : json(); }
  static void from_json(const json& from, std::optional<T>& to) {
    if (!from.is_null()) to = from.get<T>();
  }
};

namespace tutti {

inline void to_json(nlohmann::json& to, const Shape& from) { to = from.extents(); }
inline void from_json(const nlohmann::json& from, Shape& to) { to = Shape(from.get<std::vector<std::int64_t>>()); }

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SkippedImage, before, name, problem);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FileContents, sampled, sample, whole);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ChannelStatistics, mean, deviation);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DatasetInfo, name, image, classes, class_names, samples, statistics, labelled,
                                   skipped, contents);

namespace {

constexpr std::size_t kAlignment = 8;
constexpr std::size_t kExpectedMetadataBytes = 4096;

std::size_t padded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class BlockWriter {
 public:
  explicit BlockWriter(std::size_t expected_bytes) { bytes_.reserve(expected_bytes); }

  template <class T>
  void add(const std::vector<T>& values) {
    const std::size_t count = values.size();
    append(std::as_bytes(std::span(&count, 1)));
    append(std::as_bytes(std::span(values)));
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

  template <class T>
  std::span<const T> next() {
    std::size_t count = 0;
    std::memcpy(&count, take(sizeof count).data(), sizeof count);
    return {reinterpret_cast<const T*>(take(count * sizeof(T)).data()), count};
  }
  nlohmann::json next_metadata() { return nlohmann::json::from_msgpack(next<std::uint8_t>()); }

 private:
  std::span<const std::byte> take(std::size_t bytes) {
    if (padded(bytes) > rest_.size()) throw Error(ErrorSource::internal, "a data block ends too early");
    const auto taken = rest_.first(bytes);
    rest_ = rest_.subspan(padded(bytes));
    return taken;
  }

  std::span<const std::byte> rest_;
};

void write_set(BlockWriter& block, const LoadedSet& set) {
  nlohmann::json metadata{{"info", set.info}, {"digest", digest_of(set)}};
  metadata["info"]["samples"] = set.labels.size();
  const auto* files = std::get_if<ImageFiles>(&set.pixels);
  const auto* stored = std::get_if<StoredImages>(&set.pixels);
  if (files != nullptr) metadata.update({{"folder", files->folder.string()}, {"upright", files->upright}});
  if (stored != nullptr) {
    metadata.update({{"path", stored->path}, {"array", stored->array}, {"stored_digest", stored->digest}});
  }
  block.add(nlohmann::json::to_msgpack(metadata));
  block.add(set.labels);
  if (files != nullptr) {
    std::vector<char> letters;
    std::vector<std::uint64_t> ends;
    for (const auto& [name, bytes] : files->files) {
      letters.insert(letters.end(), name.begin(), name.end());
      ends.push_back(letters.size());
    }
    block.add(letters);
    block.add(ends);
  } else if (stored != nullptr) {
    block.add(stored->rows);
    block.add(stored->checksums);
  } else {
    block.add(std::get<std::vector<std::uint8_t>>(set.pixels));
  }
}

// A data set whose images are read from files lazily.
class FileSet : public Dataset {
 public:
  FileSet(const nlohmann::json& metadata, BlockReader& block)
      : info_(metadata.at("info").get<DatasetInfo>()),
        labels_(block.next<std::int32_t>()),
        digest_(metadata.at("digest").get<std::uint64_t>()) {
    info_.class_samples = count_classes(info_, labels_);
  }
  const DatasetInfo& info() const override { return info_; }
  std::size_t resident_bytes() const override { return 0; }
  std::uint64_t digest() const override { return digest_; }

 protected:
  std::int32_t label(std::size_t sample) const { return labels_[sample]; }

 private:
  DatasetInfo info_;
  std::span<const std::int32_t> labels_;  // borrowed, as all spans of a block
  std::uint64_t digest_;
};

class ImageFolder final : public FileSet {
 public:
  ImageFolder(const nlohmann::json& metadata, BlockReader& block)
      : FileSet(metadata, block),
        folder_(metadata.at("folder").get<std::string>()),
        upright_(metadata.at("upright").get<bool>()),
        letters_(block.next<char>()),
        ends_(block.next<std::uint64_t>()) {}

  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override {
    batch.images.clear();
    batch.labels.clear();
    batch.buffers.resize(std::max(batch.buffers.size(), samples.size()));
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const std::string path = file_of(samples[i]);
      const Shape shape = read_image(path, info().image[0], upright_, batch.buffers[i]);
      if (!info().sizes_differ() && shape != info().image) {
        throw Error(ErrorSource::input, fmt::format("the image '{}' is {} now, but was {} when the set was opened",
                                                    path, shape.text(), info().image.text()));
      }
      batch.images.push_back({batch.buffers[i].data(), shape});
      batch.labels.push_back(label(info().index_of(samples[i])));
    }
  }

  std::string file_of(std::int64_t sample) const override {
    const std::size_t index = info().index_of(sample);
    const std::uint64_t begin = index == 0 ? 0 : ends_[index - 1];
    const auto name = letters_.subspan(begin, ends_[index] - begin);
    return (folder_ / std::string(name.begin(), name.end())).string();
  }

 private:
  std::filesystem::path folder_;
  bool upright_;                         // as in ImageFiles
  std::span<const char> letters_;        // the concatenated names
  std::span<const std::uint64_t> ends_;  // of each name
};

ArrayFile open_sealed(const std::string& path) {
  check_seal(path);
  return ArrayFile(path);
}

// Images in a data file (tutti/data/data_file.hpp).
class StoredSet final : public FileSet {
 public:
  StoredSet(const nlohmann::json& metadata, BlockReader& block)
      : FileSet(metadata, block),
        array_(metadata.at("array").get<std::string>()),
        rows_(block.next<std::int64_t>()),
        checksums_(block.next<std::int32_t>()),
        file_(open_sealed(metadata.at("path").get<std::string>())) {
    const std::string group = array_.substr(0, array_.rfind('/'));
    if (file_.shape(array_).without_first() != info().image ||
        file_.read_text(group + "/digest") != digest_text(metadata.at("stored_digest").get<std::uint64_t>())) {
      throw Error(ErrorSource::input, fmt::format("'{}' has changed since it was opened", file_.path()));
    }
  }

  // Consecutive rows are read with one call.
  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override {
    const auto image_bytes = static_cast<std::size_t>(info().image.elements());
    batch.images.clear();
    batch.labels.clear();
    std::size_t runs = 0;
    for (std::size_t begin = 0, end = 0; begin < samples.size(); begin = end) {
      const auto row_of = [&](std::size_t i) { return rows_[info().index_of(samples[i])]; };
      const std::int64_t first = row_of(begin);
      const auto next_row = [&] { return first + static_cast<std::int64_t>(end - begin); };
      for (end = begin + 1; end < samples.size() && row_of(end) == next_row();) ++end;
      batch.buffers.resize(std::max(batch.buffers.size(), runs + 1));
      auto& buffer = batch.buffers[runs++];
      buffer.resize((end - begin) * image_bytes);
      file_.read_rows(array_, first, static_cast<std::int64_t>(end - begin), buffer);
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
    if (checksums_.empty()) return;
    const std::uint32_t found = crc32c(std::as_bytes(image));
    const auto expected = static_cast<std::uint32_t>(checksums_[sample]);
    if (found == expected) return;
    throw Error(ErrorSource::input,
                fmt::format("'{}' is damaged: row {} of {} has the checksum {:08x} instead of {:08x}; restore the file "
                            "from a copy, or {} data convert its source again",
                            file_.path(), rows_[sample], array_, found, expected, program_call()));
  }

  std::string array_;
  std::span<const std::int64_t> rows_;       // by sample
  std::span<const std::int32_t> checksums_;  // by sample; empty in a file of an early version
  ArrayFile file_;
};

std::unique_ptr<Dataset> open_set(BlockReader& block) {
  const nlohmann::json metadata = block.next_metadata();
  if (metadata.contains("folder")) return std::make_unique<ImageFolder>(metadata, block);
  if (metadata.contains("array")) return std::make_unique<StoredSet>(metadata, block);
  const auto labels = block.next<std::int32_t>();
  return std::make_unique<MemoryDataset>(metadata.at("info").get<DatasetInfo>(), block.next<std::uint8_t>(), labels,
                                         metadata.at("digest").get<std::uint64_t>());
}

std::size_t bytes_of(const LoadedSet& set) {
  const auto* images = std::get_if<std::vector<std::uint8_t>>(&set.pixels);
  return (images == nullptr ? 0 : images->size()) + set.labels.size() * sizeof(std::int32_t);
}

}  // namespace

std::vector<std::byte> write_block(LoadedPair pair) {
  BlockWriter block(kExpectedMetadataBytes + bytes_of(pair.train) + (pair.test ? bytes_of(*pair.test) : 0));
  block.add(nlohmann::json::to_msgpack({{"notes", pair.notes}, {"has_test", pair.test.has_value()}}));
  write_set(block, pair.train);
  pair.train = {};
  if (pair.test) write_set(block, *pair.test);
  return block.finish();
}

DataPair open_loaded(std::span<const std::byte> bytes) {
  BlockReader block(bytes);
  const nlohmann::json metadata = block.next_metadata();
  DataPair pair;
  pair.notes = metadata.at("notes");
  pair.train = open_set(block);
  if (metadata.at("has_test")) pair.test = open_set(block);
  return pair;
}

}  // namespace tutti
