#include "tutti/base/error.hpp"
#include "tutti/data/open_data.hpp"

#include "lazy_datasets.hpp"
#include "sources.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
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

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SkippedImage, next_sample, name, problem);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FileContents, sampled_files, sample_digest, whole);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ChannelStatistics, mean, deviation);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DatasetInfo, name, image, classes, class_names, samples, statistics, labelled,
                                   skipped, contents, has_short_side);

namespace {

constexpr std::size_t kBlockAlignment = 8;
constexpr std::size_t kExpectedMetadataBytes = 4096;

std::size_t padded(std::size_t bytes) { return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment; }

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
  if (files != nullptr) metadata.update({{"folder", files->folder.string()}, {"upright", files->applies_exif}});
  if (stored != nullptr) {
    metadata.update({{"path", stored->path}, {"array", stored->array}, {"stored_digest", stored->digest}});
  }
  block.add(nlohmann::json::to_msgpack(metadata));
  block.add(set.labels);
  std::vector<char> letters;
  std::vector<std::uint64_t> ends;
  const auto add_name = [&](const std::string& name) {
    letters.insert(letters.end(), name.begin(), name.end());
    ends.push_back(letters.size());
  };
  std::ranges::for_each(set.names, add_name);
  if (files != nullptr) std::ranges::for_each(files->files, add_name, &ImageFiles::File::name);
  block.add(letters);
  block.add(ends);
  if (stored != nullptr) {
    block.add(stored->rows);
    block.add(stored->checksums);
  } else if (files == nullptr) {
    block.add(std::get<std::vector<std::uint8_t>>(set.pixels));
  }
}

std::unique_ptr<Dataset> open_set(BlockReader& block) {
  const nlohmann::json metadata = block.next_metadata();
  LazySet set{.info = metadata.at("info").get<DatasetInfo>(),
              .labels = block.next<std::int32_t>(),
              .names = {.letters = block.next<char>(), .ends = block.next<std::uint64_t>()},
              .digest = metadata.at("digest").get<std::uint64_t>()};
  if (metadata.contains("folder")) {
    return make_image_folder(std::move(set), {.folder = metadata.at("folder").get<std::string>(),
                                              .applies_exif = metadata.at("upright").get<bool>()});
  }
  if (metadata.contains("array")) {
    return make_stored_dataset(std::move(set), {.path = metadata.at("path").get<std::string>(),
                                                .array = metadata.at("array").get<std::string>(),
                                                .digest = metadata.at("stored_digest").get<std::uint64_t>(),
                                                .rows = block.next<std::int64_t>(),
                                                .checksums = block.next<std::int32_t>()});
  }
  return std::make_unique<MemoryDataset>(std::move(set.info), block.next<std::uint8_t>(), set.labels, set.digest,
                                         set.names);
}

std::size_t bytes_of(const LoadedSet& set) {
  const auto* images = std::get_if<std::vector<std::uint8_t>>(&set.pixels);
  std::size_t bytes = (images == nullptr ? 0 : images->size()) + set.labels.size() * sizeof(std::int32_t);
  for (const std::string& name : set.names) bytes += name.size() + sizeof(std::uint64_t);
  return bytes;
}

}  // namespace

std::vector<std::byte> write_block(LoadedPair pair) {
  BlockWriter block(kExpectedMetadataBytes + bytes_of(pair.train) + (pair.test ? bytes_of(*pair.test) : 0));
  block.add(nlohmann::json::to_msgpack(
      {{"notes", pair.notes}, {"empty_classes", pair.empty_classes}, {"has_test", pair.test.has_value()}}));
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
  pair.empty_classes = metadata.at("empty_classes");
  pair.train = open_set(block);
  if (metadata.at("has_test")) pair.test = open_set(block);
  return pair;
}

}  // namespace tutti
