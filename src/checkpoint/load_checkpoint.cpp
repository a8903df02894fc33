#include "tutti/base/error.hpp"
#include "tutti/base/program_name.hpp"
#include "tutti/base/sha256.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"
#include "tutti/storage/row_file.hpp"
#include "tutti/storage/whole_file.hpp"

#include "checkpoint_file.hpp"
#include "shared_load.hpp"
#include "step_names.hpp"
#include "verification.hpp"

#include <fmt/format.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

// Damaged, and so not for HDF5 to try.
void refuse_marked(const std::string& path) {
  if (!path.ends_with(".bad")) return;
  throw Error(
      ErrorSource::checkpoint,
      fmt::format("'{}' was found damaged; to have it looked at again, take \".bad\" off its files' names", path));
}

constexpr const char* kRemedy = "give a run's folder, or one of its checkpoints";

// HDF5 crashes on some damaged files, and reads others for ever.
void refuse_unsealed(const std::string& path) {
  try {
    check_seal(path);
  } catch (const Error& error) {
    if (error.source() != ErrorSource::input) throw;
    throw Error(error.source(),
                fmt::format("{}, and has no manifest beside it: {}. A file of an early version, or of another program, "
                            "that you trust gets a seal by {} inspect '{}' --seal NEW.h5",
                            error.what(), kRemedy, program_call(), path));
  }
}

TrainState read_lone_file(const std::string& path) {
  const auto open = [&] {
    try {
      return ArrayFile(path);
    } catch (const Error& error) {
      if (error.source() != ErrorSource::input) throw;
      throw Error(error.source(), fmt::format("{}: {}", error.what(), kRemedy));
    }
  };
  ArrayFile file = open();
  if (file.contains("/format_version")) return state_of(file);
  throw Error(ErrorSource::checkpoint,
              fmt::format("'{}' is no checkpoint ({}): {}", path,
                          file.contains("/train/images") ? "it is a data set" : "it has no /format_version", kRemedy));
}

// Whoever has named a checkpoint has none to use, whatever is wrong with it.
template <class Load>
auto blaming_the_checkpoint(Load load) {
  try {
    return load();
  } catch (const Error& error) {
    if (error.source() == ErrorSource::checkpoint) throw;
    throw Error(ErrorSource::checkpoint, error.what(), error.where());
  }
}

}  // namespace

LoadedCheckpoint load_checkpoint(const std::string& path) {
  return blaming_the_checkpoint([&]() -> LoadedCheckpoint {
    refuse_marked(path);
    if (has_manifest(path)) {
      return {.state = state_of(read_checkpoint_bytes(path), path), .path = path};
    }
    refuse_unsealed(path);
    return {.state = read_lone_file(path), .path = path};
  });
}

LoadedCheckpoint load_checkpoint(World& world, const std::string& path) {
  LoadedCheckpoint loaded{.state = {}, .path = path};
  if (!world.agree(world.rank() != 0 || has_manifest(path))) {
    run_agreed(world, [&] { loaded = load_checkpoint(path); });
    return loaded;
  }
  CheckpointBytes bytes;
  run_agreed(world, [&] {
    if (world.rank() == 0) bytes = blaming_the_checkpoint([&] { return read_checkpoint_bytes(path); });
  });
  bytes = broadcast_checkpoint(world, std::move(bytes));
  run_agreed(world, [&] { loaded.state = state_of(bytes, path); });
  return loaded;
}

void check_readable(const TrainState& state) {
  try {
    const StoredImage image = checkpoint_image(state);
    const std::string text = manifest_text(manifest_of(state, image, sha256_text(image.bytes)));
    const auto manifest = std::as_bytes(std::span(text));
    static_cast<void>(
        state_of(CheckpointBytes{{manifest.begin(), manifest.end()}, {image.bytes}}, image_name(state.progress.step)));
  } catch (const Error& error) {
    throw Error(ErrorSource::input, error.what());
  }
}

void seal_checkpoint(const std::string& path, const std::string& target) {
  const TrainState state = blaming_the_checkpoint([&] {
    refuse_marked(path);
    return has_manifest(path) ? load_checkpoint(path).state : read_lone_file(path);
  });
  write_whole(target, checkpoint_image(state).bytes);
}

std::vector<CheckpointFile> files_of(const std::string& path) {
  std::vector<CheckpointFile> files;
  if (!has_manifest(path)) return files;
  for (const ManifestFile& file : parse_manifest(read_whole(manifest_path(path))).files) {
    files.push_back({.name = file.file, .bytes = file.bytes, .sha256 = file.sha256});
  }
  return files;
}

}  // namespace tutti
