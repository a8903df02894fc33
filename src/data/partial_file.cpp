#include "partial_file.hpp"

#include "tutti/base/checksums.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/seal.hpp"

#include "data_file_content.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <span>

namespace tutti {
namespace {

namespace fs = std::filesystem;
using JournalJson = nlohmann::json;

constexpr std::int64_t kAlignment = RawFileWriter::kAlignment;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

const std::string& made_folder(const std::string& folder) {
  std::error_code failure;
  fs::create_directory(folder, failure);
  if (failure) fail_saving(folder, "making the folder", failure.value());
  return folder;
}

// The file of earlier processes, or a new one.
Descriptor open_file(const std::string& path) {
  Descriptor file(retry_on_eintr([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666); }));
  if (!file) fail_saving(path, "opening", errno);
  return file;
}

void write_at(const Descriptor& file, const std::string& path, std::span<const std::byte> bytes, std::int64_t at) {
  const bool is_there = ::lseek(file.get(), at, SEEK_SET) == at;
  if (!is_there || !write_all(file.get(), bytes).empty()) fail_saving(path, "writing", errno);
}

void flush(const Descriptor& file, const std::string& path) {
  if (retry_on_eintr([&] { return ::fdatasync(file.get()); }) != 0) fail_saving(path, "flushing to the disk", errno);
}

template <class T>
void append_rest(JournalJson& to, const std::vector<T>& all, std::size_t from) {
  to = std::vector<T>(all.begin() + static_cast<std::ptrdiff_t>(from), all.end());
}

template <class T>
void append_all(std::vector<T>& to, const JournalJson& from) {
  for (const JournalJson& value : from) to.push_back(value.get<T>());
}

// A record of the journal: length and CRC-32C of the bytes that follow.
struct RecordHead {
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;
};

// Refuses another plan, and notes this one.
void agree_on_plan(const std::string& folder, const JournalJson& plan) {
  const std::string path = folder + "/plan.json";
  const std::string text = plan.dump(2);
  if (!file_exists(path)) return write_atomically(path, std::as_bytes(std::span(text)));
  const JournalJson before = JournalJson::parse(read_file_text(path), nullptr, /*allow_exceptions=*/false);
  if (before == plan) return;
  std::string difference = "its plan.json is damaged";
  for (const auto& [key, value] : plan.items()) {
    const JournalJson other = before.is_object() && before.contains(key) ? before.at(key) : JournalJson();
    if (other != value) difference = fmt::format("{}: {} instead of {}", key, value.dump(), other.dump());
  }
  throw Error(ErrorSource::input,
              fmt::format("'{}' has the unfinished conversion of other data, or with other options ({}): remove this "
                          "folder to begin again, or give the same source and options to continue",
                          folder, difference));
}

}  // namespace

PartialFile::PartialFile(const std::string& target, const JournalJson& plan, std::int64_t shard_bytes)
    : target_(resolve_links(target)),
      folder_(made_folder(target_ + ".partial")),
      shard_bytes_(shard_bytes),
      lock_(std::in_place, folder_, 0, Log(0, host_name(), false), "choose another name") {
  agree_on_plan(folder_, plan);
  journal_ = open_file(folder_ + "/journal");
  replay();
}

std::string PartialFile::file(std::int64_t shard) const { return fmt::format("{}/files-{:05}", folder_, shard); }

void PartialFile::replay() {
  const std::vector<std::byte> journal = read_file_bytes(folder_ + "/journal");
  std::size_t at = 0;
  // The folder of a finished file, whose process was killed before it removed the folder, is begun again.
  const bool is_old = !journal.empty() && !file_exists(file(0));
  while (!is_old && at + sizeof(RecordHead) <= journal.size()) {
    RecordHead head;
    std::memcpy(&head, journal.data() + at, sizeof head);
    const auto rest = std::span(journal).subspan(at + sizeof head);
    if (head.bytes > rest.size() || crc32c(rest.first(head.bytes)) != head.checksum) break;
    restore(JournalJson::from_msgpack(rest.first(head.bytes)));
    at += sizeof head + head.bytes;
    note_saved(at);
  }
  if (::ftruncate(journal_.get(), static_cast<off_t>(at)) != 0) fail_saving(folder_ + "/journal", "truncating", errno);
  for (std::size_t label = 0; label < state_.classes.size(); ++label) {
    label_of_.emplace(state_.classes[label], static_cast<std::int32_t>(label));
  }
}

void PartialFile::note_saved(std::size_t journal) {
  for (std::size_t set = 0; set < saved_.counts.size(); ++set) {
    saved_.counts[set] = {state_.indices[set].labels.size(), state_.indices[set].names.size()};
  }
  saved_.classes = state_.classes.size();
  saved_.bytes = state_.bytes;
  saved_.journal = journal;
}

JournalJson PartialFile::record(const ConversionPoint& point) const {
  JournalJson record{{"set", point.set},
                     {"at", point.at},
                     {"byte", point.byte},
                     {"bytes", state_.bytes},
                     {"payload", state_.payload},
                     {"skipped", state_.skipped},
                     {"encoded_again", state_.encoded_again},
                     {"problem", JournalJson::binary({state_.first_problem.begin(), state_.first_problem.end()})},
                     {"color", {state_.color_means, state_.color_squares}},
                     {"gray", {state_.gray_means, state_.gray_squares}}};
  append_rest(record["classes"], state_.classes, saved_.classes);
  for (std::size_t set = 0; set < state_.indices.size(); ++set) {
    const EncodedIndex& index = state_.indices[set];
    const auto [samples, letters] = saved_.counts[set];
    JournalJson& part = record["sets"][set];
    part["shards"] = index.shards;
    part["names"] =
        JournalJson::binary({index.names.begin() + static_cast<std::ptrdiff_t>(letters), index.names.end()});
    append_rest(part["labels"], index.labels, samples);
    append_rest(part["ends"], index.ends, samples);
    append_rest(part["checksums"], index.checksums, samples);
    append_rest(part["shapes"], index.shapes, samples * kShapeNumbers);
  }
  return record;
}

void PartialFile::restore(const JournalJson& record) {
  point_ = {record.at("set"), record.at("at"), record.at("byte")};
  state_.bytes = record.at("bytes");
  state_.payload = record.at("payload");
  state_.skipped = record.at("skipped");
  state_.encoded_again = record.at("encoded_again");
  const auto& problem = record.at("problem").get_binary();
  state_.first_problem.assign(problem.begin(), problem.end());
  state_.color_means = record.at("color").at(0);
  state_.color_squares = record.at("color").at(1);
  state_.gray_means = record.at("gray").at(0);
  state_.gray_squares = record.at("gray").at(1);
  append_all(state_.classes, record.at("classes"));
  for (std::size_t set = 0; set < state_.indices.size(); ++set) {
    EncodedIndex& index = state_.indices[set];
    const JournalJson& part = record.at("sets").at(set);
    index.shards = part.at("shards").get<std::vector<std::int64_t>>();
    const auto& names = part.at("names").get_binary();
    index.names.insert(index.names.end(), names.begin(), names.end());
    append_all(index.labels, part.at("labels"));
    append_all(index.ends, part.at("ends"));
    append_all(index.checksums, part.at("checksums"));
    append_all(index.shapes, part.at("shapes"));
  }
}

void PartialFile::checkpoint(const ConversionPoint& point) {
  if (file_) flush(file_, file(files() - 1));
  const std::vector<std::uint8_t> bytes = JournalJson::to_msgpack(record(point));
  const RecordHead head{bytes.size(), crc32c(std::as_bytes(std::span(bytes)))};
  const std::string path = folder_ + "/journal";
  const auto at = static_cast<std::int64_t>(saved_.journal);
  write_at(journal_, path, std::as_bytes(std::span(&head, 1)), at);
  write_at(journal_, path, std::as_bytes(std::span(bytes)), at + static_cast<std::int64_t>(sizeof head));
  flush(journal_, path);
  point_ = point;
  note_saved(saved_.journal + sizeof head + bytes.size());
}

std::optional<std::int32_t> PartialFile::label_of(const std::string& class_name, bool adds) {
  if (const auto found = label_of_.find(class_name); found != label_of_.end()) return found->second;
  if (!adds) return std::nullopt;
  state_.classes.push_back(class_name);
  return label_of_[class_name] = static_cast<std::int32_t>(state_.classes.size() - 1);
}

// Opens the last shard's file, without what was written after the last checkpoint.
void PartialFile::open_last() {
  const std::string path = file(files() - 1);
  file_ = open_file(path);
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) fail_saving(path, "opening", errno);
  if (status.st_size < state_.payload) {
    throw Error(ErrorSource::input,
                fmt::format("'{}' has lost bytes: remove the folder '{}' to begin again", path, folder_));
  }
  state_.payload = std::max(state_.payload, kAlignment);
  if (::ftruncate(file_.get(), state_.payload) != 0) fail_saving(path, "truncating", errno);
}

// Begins a shard if the last one is full, and a set in it.
void PartialFile::begin_shard(std::size_t set, std::int64_t bytes) {
  if (!file_) open_last();
  const bool is_full = shard_bytes_ > 0 && state_.payload > kAlignment && state_.payload + bytes > shard_bytes_;
  if (is_full) {
    flush(file_, file(files() - 1));
    const std::string path = shard_path(target_, files());
    if (file_exists(path)) {
      throw Error(ErrorSource::usage, fmt::format("'{}' exists: remove it, or choose another name", path));
    }
    for (EncodedIndex& index : state_.indices) index.shards.push_back(std::ssize(index.labels));
    state_.payload = 0;
    open_last();
  }
  const EncodedIndex& index = state_.indices[set];
  if (std::ssize(index.labels) == index.shards.back()) state_.payload = aligned(state_.payload);
}

void PartialFile::append(std::size_t set, const EncodedEntry& entry) {
  const std::int64_t bytes = std::ssize(entry.bytes);
  begin_shard(set, bytes);
  write_at(file_, file(files() - 1), entry.bytes, state_.payload);
  state_.payload += bytes;
  state_.bytes += bytes;
  EncodedIndex& index = state_.indices[set];
  index.names.insert(index.names.end(), entry.name.begin(), entry.name.end());
  index.names.push_back(0);
  index.labels.push_back(entry.label);
  index.ends.push_back((index.ends.empty() ? 0 : index.ends.back()) + bytes);
  index.checksums.push_back(static_cast<std::int32_t>(crc32c(entry.bytes)));
  index.shapes.insert(index.shapes.end(), entry.shape.begin(), entry.shape.end());
  if (entry.encoded_again) ++state_.encoded_again;
  if (set != 0) return;
  if (entry.shape[0] == 1) {
    state_.gray_means += entry.means[0];
    state_.gray_squares += entry.squares[0];
    return;
  }
  for (std::size_t c = 0; c < entry.means.size(); ++c) {
    state_.color_means[c] += entry.means[c];
    state_.color_squares[c] += entry.squares[c];
  }
}

void PartialFile::skip(const std::string& problem) {
  if (state_.skipped++ == 0) state_.first_problem = problem;
}

// Each image has the same weight. Gray ones are used in color if others are in color.
ChannelStatistics PartialFile::statistics() const {
  const EncodedIndex& index = state_.indices[0];
  const auto images = static_cast<double>(index.labels.size());
  bool has_color = false;
  for (std::size_t i = 0; i < index.shapes.size(); i += kShapeNumbers) has_color = has_color || index.shapes[i] > 1;
  ChannelStatistics statistics;
  for (std::size_t c = 0; c < (has_color ? 3U : 1U); ++c) {
    const double mean = (state_.color_means[c] + state_.gray_means) / images;
    const double square = (state_.color_squares[c] + state_.gray_squares) / images;
    statistics.mean.push_back(mean / 255);
    statistics.deviation.push_back(std::sqrt(std::max(0.0, square - mean * mean)) / 255);
  }
  return statistics;
}

std::int64_t PartialFile::samples_before(std::size_t set, std::int64_t shard) const {
  const EncodedIndex& index = state_.indices[set];
  return shard < std::ssize(index.shards) ? index.shards[static_cast<std::size_t>(shard)] : std::ssize(index.labels);
}

// The position of the shard's first byte among those of the set.
std::int64_t PartialFile::begin_of(std::size_t set, std::int64_t shard) const {
  const std::int64_t samples = samples_before(set, shard);
  return samples == 0 ? 0 : state_.indices[set].ends[static_cast<std::size_t>(samples - 1)];
}

std::string PartialFile::digest_of(std::int64_t shard) const {
  std::uint64_t sum = digest_start("shard", static_cast<std::uint64_t>(shard));
  for (std::size_t set = 0; set < state_.indices.size(); ++set) {
    const auto first = static_cast<std::size_t>(samples_before(set, shard));
    const auto count = static_cast<std::size_t>(samples_before(set, shard + 1)) - first;
    sum += digest(kSetGroups[set], std::span(state_.indices[set].checksums).subspan(first, count));
  }
  return digest_text(sum);
}

bool PartialFile::is_finished(std::int64_t shard) const {
  const std::string path = shard_path(target_, shard);
  if (file_exists(file(shard)) || !file_exists(path)) return false;
  check_seal(path);
  const ArrayFile found(path);
  return found.contains("/digest") && found.read_text("/digest") == digest_of(shard);
}

void PartialFile::finish_shard(std::int64_t shard, const DatasetInfo& info,
                               const std::vector<std::int32_t>& new_labels) const {
  std::vector<RawFileWriter::Array> arrays;
  for (std::size_t set = 0; set < state_.indices.size(); ++set) {
    const std::int64_t bytes = begin_of(set, shard + 1) - begin_of(set, shard);
    if (bytes > 0) arrays.push_back({fmt::format("{}/files", kSetGroups[set]), aligned(bytes)});
  }
  RawFileWriter file(this->file(shard), arrays);
  if (shard > 0) {
    file.add_text("/format", kEncodedShardFormat);
    file.add_text("/digest", digest_of(shard));
    return file.commit(shard_path(target_, shard));
  }
  file.add_text("/format", kEncodedFormat);
  write_description(file, info);
  if (files() > 1) {
    std::vector<std::string> digests;
    for (std::int64_t other = 1; other < files(); ++other) digests.push_back(digest_of(other));
    file.add_text("/shards", fmt::format("{}", fmt::join(digests, "\n")));
  }
  const Shape channels{std::ssize(info.statistics.mean)};
  file.add("/mean", channels, info.statistics.mean);
  file.add("/deviation", channels, info.statistics.deviation);
  for (std::size_t set = 0; set < state_.indices.size(); ++set) {
    const EncodedIndex& index = state_.indices[set];
    if (index.labels.empty()) continue;
    const std::string group = kSetGroups[set];
    const std::int64_t samples = std::ssize(index.labels);
    std::vector<std::int32_t> labels;
    for (const std::int32_t label : index.labels) labels.push_back(new_labels[static_cast<std::size_t>(label)]);
    file.add(group + "/labels", Shape{samples}, labels);
    file.add(group + "/ends", Shape{samples}, index.ends);
    file.add(group + "/checksums", Shape{samples}, index.checksums);
    file.add(group + "/shapes", Shape{samples, kShapeNumbers}, index.shapes);
    file.add(group + "/names", Shape{std::ssize(index.names)}, index.names);
    if (files() > 1) file.add(group + "/shards", Shape{files()}, index.shards);
  }
  file.commit(target_);
}

// The target appears last. If the process is killed before, the next one finishes the rest.
void PartialFile::finish(DatasetInfo info, const std::vector<std::int32_t>& new_labels) {
  file_.reset();
  info.statistics = statistics();
  for (std::int64_t shard = files() - 1; shard >= 0; --shard) {
    if (shard > 0 && is_finished(shard)) continue;
    if (!file_exists(file(shard))) {
      throw Error(ErrorSource::input,
                  fmt::format("'{}' is missing: remove the folder '{}' to begin again", file(shard), folder_));
    }
    finish_shard(shard, info, new_labels);
  }
  journal_.reset();
  std::error_code failure;
  fs::remove_all(folder_, failure);
  if (!failure) return;
  lock_.reset();  // on NFS, a file that is open keeps its folder
  fs::remove_all(folder_, failure);
}

}  // namespace tutti
