#include "tutti/storage/checkpoint_store.hpp"

#include "tutti/base/checksums.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/base/unique_handle.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "checkpoint_format.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// How long to wait for the other files of a checkpoint: a minimum, and a multiple of the time for this rank's file. NFS
// may hide a new file for 90 s from a host that has looked for it.
constexpr double kMinWaitSeconds = 180;
constexpr double kWaitFactor = 5;

void make_folder(const std::string& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (!failure) return;
  throw Error(ErrorSource::save,
              fmt::format("cannot make the folder '{}': {}; choose another one", folder, failure.message()));
}

// Waits for the partial manifests of the other files and adds them to `manifest`. A writer creates its partial manifest
// only after it has verified its file.
void gather_files(const std::string& folder, double wait_seconds, int files, Manifest& manifest) {
  const Stopwatch watch;
  for (int file = 1; file < files; ++file) {
    const std::string path = folder + "/" + manifest_name(manifest.step, file);
    while (!file_exists(path)) {
      if (watch.seconds() > wait_seconds) {
        throw Error(ErrorSource::save,
                    fmt::format("'{}' did not appear within {:.0f} s: see the messages of the rank that writes it, and "
                                "check that all ranks see this folder",
                                path, wait_seconds));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const Manifest partial = parse_manifest(read_file_bytes(path));
    manifest.weights += partial.weights;
    manifest.files.push_back(partial.files.at(0));
  }
}

// Writes the manifest under its temporary name before the data file is renamed. So a data file that was never committed
// can be distinguished from one whose manifest was lost.
void commit_checkpoint(AtomicFile& data, const std::string& data_path, const Manifest& manifest,
                       const std::string& path) {
  const std::string text = manifest_text(manifest);
  AtomicFile file(path);
  file.append(std::as_bytes(std::span(text)));
  file.verify(std::as_bytes(std::span(text)));
  try {
    data.commit();
    file.commit();
  } catch (const Error&) {
    // Without a temporary name the data file has been renamed, even if flushing its folder failed. It is removed unless
    // an earlier save has already committed a checkpoint of this step.
    if (data.temporary().empty() && !file.temporary().empty() && !fs::is_regular_file(path)) {
      static_cast<void>(::unlink(data_path.c_str()));
    }
    throw;
  }
}

// Suffix of the manifest of a checkpoint that is being removed. If the removal is interrupted, the remaining files look
// like those of an unfinished save.
constexpr const char* kRetiredSuffix = ".tmp.old";

// Calls `call`, which removes `path`. It is not an error if the file no longer exists.
template <class Call>
void remove_or_throw(const std::string& path, Call call) {
  if (retry_on_eintr(call) == 0 || errno == ENOENT) return;
  throw Error(ErrorSource::save, fmt::format("cannot remove '{}', which is no longer needed: {}; remove it by hand",
                                             path, std::generic_category().message(errno)));
}

void remove_file(const std::string& path) {
  remove_or_throw(path, [&] { return ::unlink(path.c_str()); });
}

bool is_partial_manifest(const CheckpointFileName& file) { return file.is_manifest && file.file != 0; }

// Removes the files for which `is_obsolete` is true, and manifests last.
template <class Predicate>
void remove_files(const std::string& folder, std::vector<CheckpointFileName> files, Predicate is_obsolete) {
  std::erase_if(files, std::not_fn(is_obsolete));
  std::ranges::stable_partition(files, [](const CheckpointFileName& file) { return !file.is_manifest; });
  std::vector<std::string> paths;
  for (const CheckpointFileName& file : files) {
    const std::string path = folder + "/" + file.text();
    paths.push_back(path);
    if (!file.is_manifest || is_partial_manifest(file)) continue;
    paths.back() += kRetiredSuffix;
    remove_or_throw(path, [&] { return std::rename(path.c_str(), paths.back().c_str()); });
  }
  std::ranges::for_each(paths, remove_file);
}

// True for a data file whose save was killed: before the manifest was renamed from its temporary name, or, if the state
// is split, before all files were written, so that only a partial manifest exists.
bool is_uncommitted(const CheckpointFileName& file, const CheckpointListing& listing,
                    const std::set<std::int64_t>& complete) {
  if (file.is_manifest || complete.contains(file.step)) return false;
  CheckpointFileName own = file;
  own.is_manifest = true;
  const auto is_its_manifest = [&](const std::string& name) {
    return name.starts_with(own.text() + ".") || name.starts_with(manifest_name(file.step) + ".");
  };
  return std::ranges::any_of(listing.temporary, is_its_manifest) ||
         std::ranges::find(listing.files, own) != listing.files.end();
}

// True for remnants of a failed save, provided that no save of this step is in progress.
bool is_left_over(const CheckpointFileName& file, const CheckpointListing& listing,
                  const std::set<std::int64_t>& complete) {
  return is_partial_manifest(file) || is_uncommitted(file, listing, complete);
}

// Writes these bytes to an empty file and verifies them. Returns their SHA-256, which another thread computes during
// the write.
std::string write_and_hash(AtomicFile& file, std::span<const std::byte> bytes) {
  auto hash = std::async(std::launch::async | std::launch::deferred, [bytes] { return sha256_text(bytes); });
  file.append(bytes);
  file.verify(bytes);
  return hash.get();
}

}  // namespace

std::int64_t estimate_checkpoint_bytes(std::int64_t tensor_bytes, std::int64_t tensors) {
  constexpr std::int64_t kTexts = 32 << 10;          // options, versions, and padding to whole pages
  constexpr std::int64_t kMetadataPerTensor = 1280;  // in the file and the manifest
  return tensor_bytes + kTexts + tensors * kMetadataPerTensor;
}

CheckpointStore::CheckpointStore(std::string folder, std::function<void()> before_write)
    : folder_(std::move(folder)), before_write_(std::move(before_write)) {}

bool CheckpointStore::holds_any() const {
  const CheckpointListing listing = list_checkpoints(folder_);
  return listing.any_bad || !listing.files.empty();
}

std::vector<std::int64_t> CheckpointStore::steps() const {
  const auto steps = list_checkpoints(folder_).complete();
  return {steps.begin(), steps.end()};
}

std::string CheckpointStore::path_of(std::int64_t step) const { return folder_ + "/" + checkpoint_file_name(step); }

SaveReport CheckpointStore::save(const TrainState& state, FileShard shard, std::vector<std::byte>* buffer) const {
  const Stopwatch watch;
  before_write_();
  make_folder(folder_);
  const std::int64_t step = state.progress.step;
  const std::string data_path = folder_ + "/" + checkpoint_file_name(step, shard.file);
  std::vector<std::byte> bytes =
      checkpoint_file_bytes(state, buffer == nullptr ? std::vector<std::byte>() : std::move(*buffer));
  AtomicFile data(data_path);
  Manifest manifest = manifest_of(state, bytes, write_and_hash(data, bytes), shard);
  if (shard.file == 0) {
    gather_files(folder_, std::max(kMinWaitSeconds, kWaitFactor * watch.seconds()), shard.files, manifest);
  }
  before_write_();
  commit_checkpoint(data, data_path, manifest, folder_ + "/" + manifest_name(step, shard.file));
  const std::int64_t size = std::ssize(bytes);
  if (buffer != nullptr) *buffer = std::move(bytes);
  return {.step = step, .path = path_of(step), .bytes = size, .seconds = watch.seconds()};
}

void CheckpointStore::prune(const KeepRule& keep) const {
  before_write_();
  const CheckpointListing listing = list_checkpoints(folder_);
  std::set<std::int64_t> complete = listing.complete();
  complete.erase(complete.upper_bound(keep.last_step), complete.end());
  std::set<std::int64_t> obsolete;
  if (keep.newest > 0) {
    const auto older = std::max<std::ptrdiff_t>(std::ssize(complete) - keep.newest, 0);
    obsolete.insert(complete.begin(), std::next(complete.begin(), older));
    obsolete.erase(keep.best_step);
  }
  remove_files(folder_, listing.files, [&](const CheckpointFileName& file) {
    const bool is_settled = !complete.empty() && file.step <= *complete.rbegin();
    return obsolete.contains(file.step) || (is_settled && is_left_over(file, listing, complete));
  });
}

std::optional<std::int64_t> CheckpointStore::evict_oldest(const KeepRule& keep) const {
  before_write_();
  const CheckpointListing listing = list_checkpoints(folder_);
  std::set<std::int64_t> complete = listing.complete();
  complete.erase(complete.lower_bound(keep.last_step), complete.end());
  // The newest intact checkpoint is never evicted, since no newer one may ever be saved.
  while (!complete.empty() && !is_intact(path_of(*complete.rbegin()))) complete.erase(std::prev(complete.end()));
  if (!complete.empty()) complete.erase(std::prev(complete.end()));
  complete.erase(keep.best_step);
  if (complete.empty()) return std::nullopt;
  const std::int64_t oldest = *complete.begin();
  remove_files(folder_, listing.files, [&](const CheckpointFileName& file) { return file.step == oldest; });
  return oldest;
}

void CheckpointStore::clear_leftovers() const {
  before_write_();
  const CheckpointListing listing = list_checkpoints(folder_);
  const std::set<std::int64_t> complete = listing.complete();
  remove_files(folder_, listing.files,
               [&](const CheckpointFileName& file) { return is_left_over(file, listing, complete); });
  for (const std::string& name : listing.temporary) remove_file(folder_ + "/" + name);
}

}  // namespace tutti
