#include "tutti/storage/checkpoint_store.hpp"

#include "tutti/base/checksums.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/base/unique_handle.hpp"
#include "tutti/storage/whole_file.hpp"

#include "checkpoint_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <future>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Of the other files of a checkpoint, after this rank's own.
constexpr double kLeastWaitSeconds = 60;
constexpr double kWaitTimesOwn = 5;

void make_folder(const std::string& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (!failure) return;
  throw Error(ErrorSource::save,
              fmt::format("cannot make the folder '{}': {}; choose another one", folder, failure.message()));
}

// Of the files that have not come yet, by what their writers leave beside them. All are good when they are told of.
void gather_files(const std::string& folder, double wait_seconds, int files, Manifest& manifest) {
  const Stopwatch watch;
  for (int file = 1; file < files; ++file) {
    const std::string path = folder + "/" + manifest_name(manifest.step, file);
    std::error_code unknown;
    while (!fs::exists(path, unknown)) {
      if (watch.seconds() > wait_seconds) {
        throw Error(ErrorSource::save,
                    fmt::format("'{}' has not come in {:.0f} s: its writer tells why, or does not see this folder",
                                path, wait_seconds));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    const Manifest part = parse_manifest(read_whole(path));
    manifest.weights += part.weights;
    manifest.files.push_back(part.files.at(0));
  }
}

// The manifest lies there under its temporary name before the image gets its own: so an image that was never committed
// can be told from one that has lost its manifest.
void commit(WholeFile& image, const std::string& image_path, const Manifest& manifest, const std::string& path) {
  const std::string text = manifest_text(manifest);
  WholeFile file(path);
  file.append(std::as_bytes(std::span(text)));
  file.prove(std::as_bytes(std::span(text)));
  try {
    image.keep();
    file.keep();
  } catch (const Error&) {
    // A file without a temporary name has its own by now, even where its folder could not be flushed. A checkpoint that
    // counts already, and is only saved once more, keeps its image.
    if (image.temporary().empty() && !file.temporary().empty() && !fs::is_regular_file(path)) {
      static_cast<void>(::unlink(image_path.c_str()));
    }
    throw;
  }
}

// Behind the name of a manifest whose checkpoint counts no longer, for as long as files of it are there: whoever finds
// them takes them for those of a save that never came to its end.
constexpr const char* kRetired = ".tmp.old";

// `call` removes it, unless that has been done already.
template <class Call>
void take_away(const std::string& path, Call call) {
  if (retry_on_eintr(call) == 0 || errno == ENOENT) return;
  throw Error(ErrorSource::save, fmt::format("cannot remove '{}', which is no longer needed: {}; remove it by hand",
                                             path, std::generic_category().message(errno)));
}

void remove_file(const std::string& path) {
  take_away(path, [&] { return ::unlink(path.c_str()); });
}

bool is_of_a_part(const StepName& file) { return file.kind == StepName::Kind::manifest && file.file != 0; }

void remove_files(const std::string& folder, const std::vector<StepName>& files) {
  std::vector<std::string> images;
  std::vector<std::string> manifests;
  for (const StepName& file : files) {
    const std::string path = folder + "/" + file.text();
    if (file.kind == StepName::Kind::image) {
      images.push_back(path);
    } else if (is_of_a_part(file)) {
      manifests.push_back(path);
    } else {
      manifests.push_back(path + kRetired);
      take_away(path, [&] { return std::rename(path.c_str(), manifests.back().c_str()); });
    }
  }
  for (const std::string& image : images) remove_file(image);
  for (const std::string& manifest : manifests) remove_file(manifest);
}

// Killed between the last two renames of its save: a manifest is still called temporary. Or one of several files, of
// which another has never come: the manifest is its own alone.
bool is_uncommitted(const StepName& file, const StepFolder& listing, const std::set<std::int64_t>& complete) {
  if (file.kind != StepName::Kind::image || complete.contains(file.step)) return false;
  StepName own = file;
  own.kind = StepName::Kind::manifest;
  const auto is_its_manifest = [&](const std::string& name) {
    return name.starts_with(own.text() + ".") || name.starts_with(manifest_name(file.step) + ".");
  };
  return std::ranges::any_of(listing.temporary, is_its_manifest) ||
         std::ranges::find(listing.files, own) != listing.files.end();
}

// Where no save of its step is under way.
bool is_left_over(const StepName& file, const StepFolder& listing, const std::set<std::int64_t>& complete) {
  return is_of_a_part(file) || is_uncommitted(file, listing, complete);
}

// Writes these bytes to an empty file and proves them. Returns their SHA-256, found in another thread while the disk is
// at work.
std::string write_and_sum(WholeFile& file, std::span<const std::byte> bytes) {
  auto sum = std::async(std::launch::async | std::launch::deferred, [bytes] { return sha256_text(bytes); });
  file.append(bytes);
  file.prove(bytes);
  return sum.get();
}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, std::function<void()> before_write)
    : folder_(std::move(folder)), before_write_(std::move(before_write)) {}

bool CheckpointStore::holds_any() const {
  const StepFolder listing = list_steps(folder_);
  return listing.any_bad || !listing.files.empty();
}

std::vector<std::int64_t> CheckpointStore::steps() const {
  const auto steps = list_steps(folder_).complete();
  return {steps.begin(), steps.end()};
}

std::string CheckpointStore::path_of(std::int64_t step) const { return folder_ + "/" + image_name(step); }

SaveReport CheckpointStore::save(const TrainState& state, FileShare share, std::vector<std::byte>* room) const {
  const Stopwatch watch;
  before_write_();
  make_folder(folder_);
  const std::int64_t step = state.progress.step;
  const std::string image_path = folder_ + "/" + image_name(step, share.file);
  std::vector<std::byte> bytes = checkpoint_image(state, room == nullptr ? std::vector<std::byte>() : std::move(*room));
  WholeFile image(image_path);
  Manifest manifest = manifest_of(state, bytes, write_and_sum(image, bytes), share);
  if (share.file == 0) {
    gather_files(folder_, std::max(kLeastWaitSeconds, kWaitTimesOwn * watch.seconds()), share.files, manifest);
  }
  before_write_();
  commit(image, image_path, manifest, folder_ + "/" + manifest_name(step, share.file));
  const std::int64_t size = std::ssize(bytes);
  if (room != nullptr) *room = std::move(bytes);
  return {.step = step, .path = path_of(step), .bytes = size, .seconds = watch.seconds()};
}

void CheckpointStore::prune(const KeepRule& keep) const {
  before_write_();
  const StepFolder listing = list_steps(folder_);
  std::set<std::int64_t> complete = listing.complete();
  complete.erase(complete.upper_bound(keep.last_step), complete.end());
  std::set<std::int64_t> superfluous;
  if (keep.newest > 0) {
    const auto older = std::max<std::ptrdiff_t>(std::ssize(complete) - keep.newest, 0);
    superfluous.insert(complete.begin(), std::next(complete.begin(), older));
    superfluous.erase(keep.best_step);
  }
  std::vector<StepName> files = listing.files;
  std::erase_if(files, [&](const StepName& file) {
    const bool is_settled = !complete.empty() && file.step <= *complete.rbegin();
    return !superfluous.contains(file.step) && !(is_settled && is_left_over(file, listing, complete));
  });
  remove_files(folder_, files);
}

std::optional<std::int64_t> CheckpointStore::give_up_oldest(const KeepRule& keep) const {
  const StepFolder listing = list_steps(folder_);
  std::set<std::int64_t> complete = listing.complete();
  complete.erase(complete.lower_bound(keep.last_step), complete.end());
  // The newest good one always stays: it is all that is left of the run if the disk takes nothing more.
  while (!complete.empty() && !is_proven(path_of(*complete.rbegin()))) complete.erase(std::prev(complete.end()));
  if (!complete.empty()) complete.erase(std::prev(complete.end()));
  complete.erase(keep.best_step);
  if (complete.empty()) return std::nullopt;
  const std::int64_t oldest = *complete.begin();
  std::vector<StepName> files = listing.files;
  std::erase_if(files, [&](const StepName& file) { return file.step != oldest; });
  remove_files(folder_, files);
  return oldest;
}

void CheckpointStore::clear_leftovers() const {
  before_write_();
  const StepFolder listing = list_steps(folder_);
  const std::set<std::int64_t> complete = listing.complete();
  std::vector<StepName> files = listing.files;
  std::erase_if(files, [&](const StepName& file) { return !is_left_over(file, listing, complete); });
  remove_files(folder_, files);
  for (const std::string& name : listing.temporary) remove_file(folder_ + "/" + name);
}

}  // namespace tutti
