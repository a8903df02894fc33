#include "load_checkpoint.hpp"

#include "tutti/base/checksums.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/row_file.hpp"
#include "tutti/storage/whole_file.hpp"

#include "checkpoint_file.hpp"
#include "step_folder.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <new>
#include <ranges>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestManifest = std::int64_t{1} << 26;

Error fault(const std::string& path, std::string_view text) {
  return Error(ErrorSource::checkpoint, fmt::format("'{}': {}", path, text));
}

std::int64_t size_of(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) throw fault(path, "it is missing");
  if (error) throw Error(ErrorSource::io, fmt::format("cannot read '{}': {}", path, error.message()));
  return static_cast<std::int64_t>(bytes);
}

std::string beside(const std::string& path, const std::string& name) {
  return fs::path(path).replace_filename(name).string();
}

Manifest parse(std::span<const std::byte> text, const std::string& path) {
  try {
    return parse_manifest(text);
  } catch (const Error& error) {
    throw Error(error.source(), fmt::format("'{}': {}", path, error.what()));
  }
}

// Its files are those that a save of its step makes, in this folder, and the first of them is the one asked for.
void refuse_other_names(const Manifest& manifest, const std::string& path) {
  bool alike = !manifest.files.empty() && fs::path(path).filename() == manifest.files.front().file;
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    alike &= manifest.files[i].file == image_name(manifest.step, static_cast<int>(i));
  }
  if (!alike) {
    throw fault(manifest_path(path), "it is that of another checkpoint: a checkpoint's files keep their names");
  }
}

std::vector<std::byte> read_proven(const ManifestFile& file, const std::string& path) {
  if (const std::int64_t bytes = size_of(path); bytes != file.bytes) {
    throw fault(path, fmt::format("it has {} bytes, its manifest says {}", bytes, file.bytes));
  }
  std::vector<std::byte> image;
  try {
    image = read_whole(path);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorSource::io, fmt::format("cannot read '{}': no memory for its {} bytes", path, file.bytes));
  }
  if (sha256_text(image) != file.sha256) throw fault(path, "it is damaged: its SHA-256 is not what its manifest says");
  return image;
}

void refuse_other_content(const TrainState& state, const Manifest& manifest, const std::string& path) {
  const auto refuse = [&](std::string_view what, const auto& held, const auto& told) {
    if (held == told) return;
    throw fault(path, fmt::format("it holds {} {}, its manifest says {}", what, held, told));
  };
  refuse("step", state.progress.step, manifest.step);
  refuse("epoch", state.progress.epoch, manifest.epoch);
  refuse("data of digest", digest_text(state.data_digest), digest_text(manifest.data_digest));
  refuse("weights of digest", digest_text(weights_digest(state)), digest_text(manifest.weights));
}

void broadcast_bytes(World& world, std::vector<std::byte>& bytes) {
  std::uint64_t length = bytes.size();
  world.broadcast(std::as_writable_bytes(std::span(&length, 1)), 0);
  bytes.resize(length);
  world.broadcast(bytes, 0);
}

// Rank 0's bytes everywhere. Collective.
CheckpointBytes broadcast_checkpoint(World& world, CheckpointBytes mine) {
  if (world.size() == 1) return mine;
  std::uint64_t files = mine.images.size();
  world.broadcast(std::as_writable_bytes(std::span(&files, 1)), 0);
  mine.images.resize(files);
  broadcast_bytes(world, mine.manifest);
  for (std::vector<std::byte>& image : mine.images) broadcast_bytes(world, image);
  return mine;
}

struct Found {
  LoadedCheckpoint loaded;  // without a path: none
  CheckpointBytes bytes;
};

bool is_damage(const Error& error) { return error.source() == ErrorSource::checkpoint; }

// So that no later start tries it again. Where that fails, it will be: nothing is lost but time.
void mark_bad(const std::string& folder, const StepFolder& listing, std::int64_t step) {
  for (const StepName& file : listing.files) {
    if (file.step != step) continue;
    StepName bad = file;
    bad.bad = true;
    const std::string path = folder + "/" + file.text();
    static_cast<void>(std::rename(path.c_str(), (folder + "/" + bad.text()).c_str()));
  }
}

Found find_newest(const std::string& folder, const Log& log, Damaged damaged) {
  const StepFolder listing = list_steps(folder);
  const std::set<std::int64_t> steps = listing.complete();
  for (const std::int64_t step : std::views::reverse(steps)) {
    const std::string path = folder + "/" + image_name(step);
    try {
      CheckpointBytes bytes = read_checkpoint_bytes(path);
      TrainState state = state_of(bytes, path);
      return {.loaded = {.state = std::move(state), .path = path}, .bytes = std::move(bytes)};
    } catch (const Error& error) {
      if (!is_damage(error) && error.source() != ErrorSource::io) throw;
      log.warn(fmt::format("passed over checkpoint '{}': {}", path, error.what()));
      if (is_damage(error) && damaged == Damaged::marked) mark_bad(folder, listing, step);
    }
  }
  if (listing.files.empty() && !listing.any_bad) return {};
  throw Error(
      ErrorSource::checkpoint,
      fmt::format("no checkpoint in '{}' is good and has its manifest: restore one from a copy, or start anew in "
                  "another folder",
                  folder));
}

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
  const ArrayFile file = open();
  if (file.contains("/format_version")) return state_of(std::span(&file, 1));
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

Manifest manifest_of(const TrainState& state, const StoredImage& image, std::string sha256, FileShare share) {
  return {.step = state.progress.step,
          .epoch = state.progress.epoch,
          .weights = weights_digest(state),
          .data_digest = state.data_digest,
          .versions = state.versions,
          .files = {{.file = image_name(state.progress.step, share.file),
                     .bytes = static_cast<std::int64_t>(image.bytes.size()),
                     .sha256 = std::move(sha256)}}};
}

std::string manifest_path(const std::string& checkpoint_path) {
  return fs::path(checkpoint_path).replace_extension(".json").string();
}

bool has_manifest(const std::string& checkpoint_path) {
  std::error_code unknown;
  return fs::exists(manifest_path(checkpoint_path), unknown) || unknown;
}

CheckpointBytes read_checkpoint_bytes(const std::string& checkpoint_path) {
  const std::string path = manifest_path(checkpoint_path);
  if (size_of(path) > kLargestManifest) throw fault(path, "it is too large for a manifest");
  CheckpointBytes bytes{.manifest = read_whole(path), .images = {}};
  const Manifest manifest = parse(bytes.manifest, path);
  refuse_other_names(manifest, checkpoint_path);
  for (const ManifestFile& file : manifest.files) {
    bytes.images.push_back(read_proven(file, beside(checkpoint_path, file.file)));
  }
  return bytes;
}

TrainState state_of(const CheckpointBytes& bytes, const std::string& checkpoint_path) {
  const Manifest manifest = parse(bytes.manifest, manifest_path(checkpoint_path));
  if (manifest.files.size() != bytes.images.size()) {
    throw fault(checkpoint_path, fmt::format("{} files of {} are there", bytes.images.size(), manifest.files.size()));
  }
  try {
    std::vector<ArrayFile> files;
    for (std::size_t i = 0; i < bytes.images.size(); ++i) {
      files.emplace_back(bytes.images[i], beside(checkpoint_path, manifest.files[i].file));
    }
    TrainState state = state_of(files);
    refuse_other_content(state, manifest, checkpoint_path);
    return state;
  } catch (const Error& error) {
    if (error.source() != ErrorSource::input) throw;
    throw Error(ErrorSource::checkpoint, error.what(), error.where());
  }
}

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

std::optional<LoadedCheckpoint> CheckpointStore::newest(World& world, const Log& log, Damaged damaged) const {
  Found found;
  run_agreed(world, [&] {
    if (world.rank() == 0) found = find_newest(folder_, log, damaged);
  });
  LoadedCheckpoint& loaded = found.loaded;
  loaded.path = broadcast_text(world, loaded.path, 0);
  if (loaded.path.empty()) return std::nullopt;
  const CheckpointBytes bytes = broadcast_checkpoint(world, std::move(found.bytes));
  run_agreed(world, [&] {
    if (world.rank() != 0) loaded.state = state_of(bytes, loaded.path);
  });
  return std::move(loaded);
}

}  // namespace tutti
