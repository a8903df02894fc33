#include "tutti/base/error.hpp"
#include "tutti/data/open_data.hpp"

#include "encoded_file.hpp"
#include "lazy_datasets.hpp"
#include "sources.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

// A block is the position of a list, pixels, and this list: arrays, each preceded by its length and aligned to 8 bytes.
// Each data set begins with a MessagePack array of its metadata. Arrays that may be large follow, so that all ranks of
// a host share them.

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
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FileListing, bytes, modified);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EncodedShard, path, first, offset, bytes, modified);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DatasetInfo, name, image, classes, class_names, samples, statistics, labelled,
                                   skipped, contents, listing, has_short_side);

namespace {

constexpr std::size_t kListAlignment = 8;

std::size_t padded(std::size_t bytes) { return (bytes + kListAlignment - 1) / kListAlignment * kListAlignment; }

class ListWriter {
 public:
  explicit ListWriter(GrowingMemory& block) : block_(block) {
    const std::size_t position = padded(block.bytes());
    block.resize(position);
    std::memcpy(block.data(), &position, sizeof position);
  }

  template <class T>
  void add(const std::vector<T>& values) {
    const std::size_t count = values.size();
    const std::size_t at = block_.bytes();
    block_.resize(at + sizeof count + padded(count * sizeof(T)));
    std::memcpy(block_.data() + at, &count, sizeof count);
    if (count > 0) std::memcpy(block_.data() + at + sizeof count, values.data(), count * sizeof(T));
  }

 private:
  GrowingMemory& block_;
};

class BlockReader {
 public:
  explicit BlockReader(std::span<const std::byte> block) : block_(block) {
    std::size_t position = 0;
    std::memcpy(&position, part(0, sizeof position).data(), sizeof position);
    rest_ = part(position, block.size() - position);
  }

  template <class T>
  std::span<const T> next() {
    std::size_t count = 0;
    std::memcpy(&count, take(sizeof count).data(), sizeof count);
    return {reinterpret_cast<const T*>(take(count * sizeof(T)).data()), count};
  }
  nlohmann::json next_metadata() { return nlohmann::json::from_msgpack(next<std::uint8_t>()); }
  std::span<const std::uint8_t> pixels(std::size_t begin, std::size_t size) const {
    return {reinterpret_cast<const std::uint8_t*>(part(begin, size).data()), size};
  }

 private:
  std::span<const std::byte> part(std::size_t begin, std::size_t size) const {
    if (begin <= block_.size() && size <= block_.size() - begin) return block_.subspan(begin, size);
    throw Error(ErrorSource::internal, "a data block ends too early");
  }
  std::span<const std::byte> take(std::size_t bytes) {
    const auto taken = part(block_.size() - rest_.size(), padded(bytes)).first(bytes);
    rest_ = rest_.subspan(padded(bytes));
    return taken;
  }

  std::span<const std::byte> block_;
  std::span<const std::byte> rest_;
};

void write_set(ListWriter& list, const LoadedSet& set) {
  nlohmann::json metadata{{"info", set.info}, {"digest", digest_of(set)}};
  metadata["info"]["samples"] = set.labels.size();
  const auto* files = std::get_if<ImageFiles>(&set.pixels);
  const auto* stored = std::get_if<StoredImages>(&set.pixels);
  if (files != nullptr) metadata.update({{"folder", files->folder.string()}, {"upright", files->applies_exif}});
  if (stored != nullptr) {
    metadata.update({{"path", stored->path}, {"array", stored->array}, {"stored_digest", stored->digest}});
  }
  const auto* encoded = std::get_if<EncodedFiles>(&set.pixels);
  if (encoded != nullptr) metadata.update({{"shards", encoded->shards}, {"upright", encoded->applies_exif}});
  if (const auto* pixels = std::get_if<Pixels>(&set.pixels)) {
    metadata.update({{"pixels", pixels->begin}, {"bytes", pixels->size}});
  }
  list.add(nlohmann::json::to_msgpack(metadata));
  list.add(set.labels);
  std::vector<char> letters;
  std::vector<std::uint64_t> ends;
  const auto add_name = [&](const std::string& name) {
    letters.insert(letters.end(), name.begin(), name.end());
    ends.push_back(letters.size());
  };
  std::ranges::for_each(set.names, add_name);
  if (files != nullptr) std::ranges::for_each(files->files, add_name, &ImageFiles::File::name);
  list.add(letters);
  list.add(ends);
  if (stored != nullptr) {
    list.add(stored->rows);
    list.add(stored->checksums);
  }
  if (encoded != nullptr) {
    list.add(encoded->begins);
    list.add(encoded->bytes);
    list.add(encoded->checksums);
  }
}

std::unique_ptr<Dataset> open_set(BlockReader& block) {
  const nlohmann::json metadata = block.next_metadata();
  LazySet set{.info = metadata.at("info").get<DatasetInfo>(),
              .labels = block.next<std::int32_t>(),
              .names = {.letters = block.next<char>(), .ends = block.next<std::uint64_t>()},
              .digest = metadata.at("digest").get<std::uint64_t>()};
  if (metadata.contains("folder")) {
    return make_image_folder(std::move(set), metadata.at("folder").get<std::string>(), metadata.at("upright"));
  }
  if (metadata.contains("shards")) {
    return make_encoded_files(std::move(set), {.shards = metadata.at("shards").get<std::vector<EncodedShard>>(),
                                               .applies_exif = metadata.at("upright").get<bool>(),
                                               .begins = block.next<std::int64_t>(),
                                               .bytes = block.next<std::int32_t>(),
                                               .checksums = block.next<std::int32_t>()});
  }
  if (metadata.contains("array")) {
    return make_stored_dataset(std::move(set), {.path = metadata.at("path").get<std::string>(),
                                                .array = metadata.at("array").get<std::string>(),
                                                .digest = metadata.at("stored_digest").get<std::uint64_t>(),
                                                .rows = block.next<std::int64_t>(),
                                                .checksums = block.next<std::int32_t>()});
  }
  const auto pixels = block.pixels(metadata.at("pixels"), metadata.at("bytes"));
  return std::make_unique<MemoryDataset>(std::move(set.info), pixels, set.labels, set.digest, set.names);
}

}  // namespace

void begin_block(GrowingMemory& block) { block.resize(sizeof(std::size_t)); }

void finish_block(const LoadedPair& pair, GrowingMemory& block) {
  ListWriter list(block);
  list.add(nlohmann::json::to_msgpack(
      {{"notes", pair.notes}, {"empty_classes", pair.empty_classes}, {"has_test", pair.test.has_value()}}));
  write_set(list, pair.train);
  if (pair.test) write_set(list, *pair.test);
}

DataPair open_loaded(const Buffer& loaded) {
  BlockReader block({static_cast<const std::byte*>(loaded.data()), loaded.bytes()});
  const nlohmann::json metadata = block.next_metadata();
  DataPair pair;
  pair.notes = metadata.at("notes");
  pair.empty_classes = metadata.at("empty_classes");
  pair.train = open_set(block);
  if (metadata.at("has_test")) pair.test = open_set(block);
  return pair;
}

}  // namespace tutti
