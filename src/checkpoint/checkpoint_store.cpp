#include "tutti/checkpoint/checkpoint_store.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/whole_file.hpp"

#include "checkpoint_file.hpp"
#include "manifest.hpp"
#include "verification.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <functional>
#include <set>
#include <string_view>
#include <system_error>

namespace tutti {
namespace {

namespace fs = std::filesystem;
using NewestFirst = std::set<std::int64_t, std::greater<>>;

constexpr std::string_view kStem = "step-";
constexpr std::string_view kImageEnding = ".h5";
constexpr std::string_view kManifestEnding = ".json";

std::string name_of_step(std::int64_t step, std::string_view ending) {
  return fmt::format("{}{:08}{}", kStem, step, ending);
}

// The step of a file that save() could have written.
std::optional<std::int64_t> step_of_name(std::string_view name) {
  if (!name.starts_with(kStem)) return std::nullopt;
  const std::string_view digits = name.substr(kStem.size());
  std::int64_t step = -1;
  std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (step < 0) return std::nullopt;
  if (name != name_of_step(step, kImageEnding) && name != name_of_step(step, kManifestEnding)) return std::nullopt;
  return step;
}

NewestFirst steps_in(const std::string& folder) {
  NewestFirst steps;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto step = step_of_name(entry->path().filename().string())) steps.insert(*step);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw Error(ErrorSource::io,
                fmt::format("cannot list '{}': {}; check the path and its permissions", folder, error.message()));
  }
  return steps;
}

void write(const std::string& folder, const TrainState& state) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw Error(ErrorSource::save,
                fmt::format("cannot make the folder '{}': {}; choose another one", folder, error.message()));
  }
  const std::vector<std::byte> image = checkpoint_image(state);
  const Manifest manifest{.file = name_of_step(state.progress.step, kImageEnding),
                          .bytes = static_cast<std::int64_t>(image.size()),
                          .digest = image_digest(image),
                          .step = state.progress.step,
                          .epoch = state.progress.epoch};
  const std::string path = folder + "/" + manifest.file;
  write_whole(path, image);
  const std::string text = manifest_text(manifest);
  write_whole(manifest_path(path), std::as_bytes(std::span(text)));
}

Error fault(const std::string& text) { return Error(ErrorSource::checkpoint, text); }

// Throws unless manifest, bytes and content tell the same story. The content is asked too, since a damaged
// manifest may still be well-formed.
void verify(const std::string& path, std::int64_t step) {
  const Manifest manifest = verified_manifest(path);
  const TrainProgress progress = load_progress(path);
  if (manifest.step != step || progress.step != step || progress.epoch != manifest.epoch) {
    throw fault(fmt::format("it holds step {} of epoch {}, its manifest says step {} of epoch {}", progress.step,
                            progress.epoch, manifest.step, manifest.epoch));
  }
}

// Empty when the folder holds none at all.
std::string find_newest(const std::string& folder, const Log& log) {
  const NewestFirst steps = steps_in(folder);
  for (const std::int64_t step : steps) {
    const std::string path = folder + "/" + name_of_step(step, kImageEnding);
    try {
      verify(path, step);
      return path;
    } catch (const Error& error) {
      log.warn(fmt::format("passed over checkpoint '{}': {}", path, error.what()));
    }
  }
  if (steps.empty()) return {};
  throw fault(
      fmt::format("none of the {} checkpoints in '{}' is good; restore one from a copy, or start anew in another "
                  "folder",
                  steps.size(), folder));
}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder) : folder_(std::move(folder)) {}

bool CheckpointStore::holds_any() const { return !steps_in(folder_).empty(); }

std::vector<std::int64_t> CheckpointStore::steps() const {
  const NewestFirst steps = steps_in(folder_);
  return {steps.rbegin(), steps.rend()};
}

std::string CheckpointStore::path_of(std::int64_t step) const {
  return folder_ + "/" + name_of_step(step, kImageEnding);
}

void CheckpointStore::save(World& world, const TrainState& state) const {
  run_agreed(world, [&] {
    if (world.rank() == 0) write(folder_, state);
  });
}

std::optional<std::string> CheckpointStore::newest(World& world, const Log& log) const {
  std::string found;
  run_agreed(world, [&] {
    if (world.rank() == 0) found = find_newest(folder_, log);
  });
  found = broadcast_text(world, found, 0);
  if (found.empty()) return std::nullopt;
  return found;
}

}  // namespace tutti
