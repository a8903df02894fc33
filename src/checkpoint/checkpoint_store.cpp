#include "tutti/checkpoint/checkpoint_store.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/stopwatch.hpp"
#include "tutti/storage/whole_file.hpp"

#include "checkpoint_file.hpp"
#include "manifest.hpp"
#include "shared_load.hpp"
#include "step_folder.hpp"
#include "step_names.hpp"
#include "verification.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Of the other files of a checkpoint, after this rank's own.
constexpr double kLeastPatienceSeconds = 60;
constexpr double kPatienceTimesOwn = 5;

void make_folder(const std::string& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (!failure) return;
  throw Error(ErrorSource::save,
              fmt::format("cannot make the folder '{}': {}; choose another one", folder, failure.message()));
}

// Of the files that have not come yet, by what their writers leave beside them. All are good when they are told of.
void gather_files(const std::string& folder, double patience_seconds, int files, Manifest& manifest) {
  const Stopwatch watch;
  for (int file = 1; file < files; ++file) {
    const std::string path = folder + "/" + manifest_name(manifest.step, file);
    std::error_code unknown;
    while (!fs::exists(path, unknown)) {
      if (watch.seconds() > patience_seconds) {
        throw Error(ErrorSource::save,
                    fmt::format("'{}' has not come in {:.0f} s: its writer tells why, or does not see this folder",
                                path, patience_seconds));
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

SaveReport CheckpointStore::save(const TrainState& state, FileShare share) const {
  std::vector<std::byte> room;
  return save(state, share, room);
}

SaveReport CheckpointStore::save(const TrainState& state, FileShare share, std::vector<std::byte>& room) const {
  const Stopwatch watch;
  before_write_();
  make_folder(folder_);
  const std::int64_t step = state.progress.step;
  const std::string image_path = folder_ + "/" + image_name(step, share.file);
  StoredImage stored = checkpoint_image(state, std::move(room));
  WholeFile image(image_path);
  Manifest manifest = manifest_of(state, stored, append_and_sum(image, stored.bytes), share);
  if (share.file == 0) {
    gather_files(folder_, std::max(kLeastPatienceSeconds, kPatienceTimesOwn * watch.seconds()), share.files, manifest);
  }
  before_write_();
  commit(image, image_path, manifest, folder_ + "/" + manifest_name(step, share.file));
  room = std::move(stored.bytes);
  return {.step = step, .path = path_of(step), .bytes = std::ssize(room), .seconds = watch.seconds()};
}

}  // namespace tutti
