#include "tutti/base/error.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"
#include "tutti/storage/whole_file.hpp"

#include "checkpoint_file.hpp"
#include "shared_load.hpp"
#include "verification.hpp"

#include <fmt/format.h>

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

// A file without a manifest may be anything.
ArrayFile open_lone_file(const std::string& path) {
  const auto open = [&] {
    try {
      return ArrayFile(path);
    } catch (const Error& error) {
      if (error.source() != ErrorSource::input) throw;
      throw Error(error.source(), fmt::format("{}: {}", error.what(), kRemedy));
    }
  };
  ArrayFile file = open();
  if (file.contains("/format_version")) return file;
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
      return {.state = state_of(read_checkpoint_bytes(path), path), .path = path, .verified = true};
    }
    return {.state = state_of(open_lone_file(path)), .path = path, .verified = false};
  });
}

LoadedCheckpoint load_checkpoint(World& world, const std::string& path) {
  LoadedCheckpoint loaded{.state = {}, .path = path, .verified = world.agree(world.rank() != 0 || has_manifest(path))};
  if (!loaded.verified) {
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

std::vector<CheckpointFile> files_of(const std::string& path) {
  std::vector<CheckpointFile> files;
  if (!has_manifest(path)) return files;
  for (const ManifestFile& file : parse_manifest(read_whole(manifest_path(path))).files) {
    files.push_back({.name = file.file, .bytes = file.bytes, .sha256 = file.sha256});
  }
  return files;
}

}  // namespace tutti
