#include "tutti/base/checksums.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/storage/seal.hpp"

#include "checkpoint_format.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <new>
#include <ranges>
#include <set>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;
using FileContents = std::vector<std::vector<std::byte>>;

constexpr std::int64_t kMaxManifestBytes = std::int64_t{1} << 26;
constexpr const char* kRemedy = "give a run's folder, or one of its checkpoints";

Error damaged(const std::string& path, std::string_view text) {
  return Error(ErrorSource::checkpoint, fmt::format("'{}': {}", path, text));
}

std::int64_t size_of(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) throw damaged(path, "it is missing");
  if (error) throw Error(ErrorSource::io, fmt::format("cannot read '{}': {}", path, error.message()));
  return static_cast<std::int64_t>(bytes);
}

std::string sibling_of(const std::string& path, const std::string& name) {
  return fs::path(path).replace_filename(name).string();
}

// Also true if this cannot be determined, so that the checkpoint is never read without an existing manifest.
bool has_manifest(const std::string& checkpoint_path) {
  std::error_code unknown;
  return fs::exists(manifest_path(checkpoint_path), unknown) || unknown;
}

// Checks that the manifest lists the files that a save of its step writes, beginning with the requested one.
void refuse_other_names(const Manifest& manifest, const std::string& path) {
  bool same = !manifest.files.empty() && fs::path(path).filename() == manifest.files.front().name;
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    same &= manifest.files[i].name == checkpoint_file_name(manifest.step, static_cast<int>(i));
  }
  if (!same) {
    throw damaged(manifest_path(path), "it belongs to another checkpoint: a checkpoint's files must not be renamed");
  }
}

Manifest read_manifest(const std::string& checkpoint_path) {
  const std::string path = manifest_path(checkpoint_path);
  if (size_of(path) > kMaxManifestBytes) throw damaged(path, "it is too large for a manifest");
  try {
    return parse_manifest(read_file_bytes(path));
  } catch (const Error& error) {
    if (error.source() == ErrorSource::io) throw;
    throw Error(error.source(), fmt::format("'{}': {}", path, error.what()));
  }
}

std::vector<std::byte> read_contents(const std::string& path) {
  const std::int64_t bytes = size_of(path);
  try {
    return read_file_bytes(path);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorSource::io, fmt::format("cannot read '{}': not enough memory for its {} bytes", path, bytes));
  }
}

// The manifest and its SHA-256 may have been made from a damaged or forged file. HDF5 crashes on some of these.
void refuse_broken_seal(std::span<const std::byte> contents, const std::string& path) {
  try {
    check_seal_if_present(contents, path);
  } catch (const Error& error) {
    throw Error(ErrorSource::checkpoint, error.what());
  }
}

FileContents read_verified(const Manifest& manifest, const std::string& checkpoint_path) {
  refuse_other_names(manifest, checkpoint_path);
  FileContents contents;
  for (const CheckpointFile& file : manifest.files) {
    const std::string path = sibling_of(checkpoint_path, file.name);
    if (const std::int64_t bytes = size_of(path); bytes != file.bytes) {
      throw damaged(path, fmt::format("it has {} bytes, its manifest has {}", bytes, file.bytes));
    }
    contents.push_back(read_contents(path));
    if (sha256_text(contents.back()) != file.sha256) {
      throw damaged(path, "it is damaged: its SHA-256 is not the one in its manifest");
    }
    refuse_broken_seal(contents.back(), path);
  }
  return contents;
}

// The path of file number `file` of a checkpoint, given that of its first file.
std::string path_of_file(const std::string& first, std::size_t file) {
  return file == 0 ? first : fs::path(first).replace_extension(fmt::format(".{}.h5", file)).string();
}

// Throws a checkpoint error if the files hold no valid state, even though their checksums match.
TrainState state_in(const FileContents& contents, const std::string& checkpoint_path) {
  try {
    std::vector<ArrayFile> files;
    for (const std::vector<std::byte>& bytes : contents) {
      files.emplace_back(bytes, path_of_file(checkpoint_path, files.size()));
    }
    return state_of(files);
  } catch (const Error& error) {
    if (error.source() != ErrorSource::input) throw;
    throw Error(ErrorSource::checkpoint, error.what(), error.where());
  }
}

// HDF5 crashes on some damaged files and never finishes reading others.
void refuse_unsealed(const std::string& path) {
  try {
    check_seal(path);
  } catch (const Error& error) {
    if (error.source() != ErrorSource::input) throw;
    throw Error(error.source(),
                fmt::format("{}, and has no manifest next to it: {}. To seal a file of an early version, or of another "
                            "program, that you trust, run {} inspect '{}' --seal NEW.h5",
                            error.what(), kRemedy, program_call(), path));
  }
}

// Inspects the file on the disk first, since it may be a data set that does not fit into memory.
void refuse_other_kinds(const std::string& path) {
  std::optional<ArrayFile> file;
  try {
    file.emplace(path);
  } catch (const Error& error) {
    if (error.source() != ErrorSource::input) throw;
    throw Error(error.source(), fmt::format("{}: {}", error.what(), kRemedy));
  }
  if (file->contains("/format_version")) return;
  throw Error(ErrorSource::checkpoint,
              fmt::format("'{}' is not a checkpoint ({}): {}", path,
                          file->contains("/format") ? "it is a data set" : "it has no /format_version", kRemedy));
}

// Reads a checkpoint whose path the user gave, so every fault is reported as a checkpoint error. A file without a
// manifest must have a seal unless it is `trusted`.
ReadCheckpoint read_given(const std::string& path, bool trusted) {
  try {
    // A file that was found damaged must not be passed to HDF5.
    if (path.ends_with(".bad")) {
      throw Error(ErrorSource::checkpoint,
                  fmt::format("'{}' was found damaged; to try it again, rename its files without \".bad\"", path));
    }
    if (has_manifest(path)) return read_checkpoint(path);
    if (!trusted) refuse_unsealed(path);
    refuse_other_kinds(path);
    ReadCheckpoint lone;
    lone.loaded.path = path;
    lone.files.push_back(read_contents(path));
    lone.loaded.state = state_in(lone.files, path);
    return lone;
  } catch (const Error& error) {
    if (error.source() == ErrorSource::checkpoint) throw;
    throw Error(ErrorSource::checkpoint, error.what(), error.where());
  }
}

bool is_damage(const Error& error) { return error.source() == ErrorSource::checkpoint; }

// Renames a damaged checkpoint, so that later starts skip it. If this fails, they only spend time reading it again.
void mark_bad(const std::string& folder, const CheckpointListing& listing, std::int64_t step) {
  for (const CheckpointFileName& file : listing.files) {
    if (file.step != step) continue;
    CheckpointFileName bad = file;
    bad.bad = true;
    const std::string path = folder + "/" + file.text();
    static_cast<void>(std::rename(path.c_str(), (folder + "/" + bad.text()).c_str()));
  }
}

// The path of the result is empty if the folder holds no checkpoints.
ReadCheckpoint find_newest(const std::string& folder, const Log& log, DamagedPolicy damaged) {
  const CheckpointListing listing = list_checkpoints(folder);
  const std::set<std::int64_t> steps = listing.complete();
  std::optional<Error> unreadable;
  for (const std::int64_t step : std::views::reverse(steps)) {
    const std::string path = folder + "/" + checkpoint_file_name(step);
    try {
      return read_checkpoint(path);
    } catch (const Error& error) {
      if (!is_damage(error) && error.source() != ErrorSource::io) throw;
      if (is_damage(error) && is_intact(path)) {
        throw Error(ErrorSource::checkpoint,
                    fmt::format("'{}' is as it was saved, but cannot be used here: {}; use the version of Tutti that "
                                "saved it, or remove it to use an older one",
                                path, error.what()));
      }
      log.warn(fmt::format("skipped checkpoint '{}': {}", path, error.what()));
      if (!is_damage(error)) unreadable = error;
      if (is_damage(error) && damaged == DamagedPolicy::rename) mark_bad(folder, listing, step);
    }
  }
  if (listing.files.empty() && !listing.any_bad) return {};
  if (unreadable) throw *unreadable;
  throw Error(ErrorSource::checkpoint,
              fmt::format("no checkpoint in '{}' is intact: restore one from a copy, or start a new run "
                          "in another folder",
                          folder));
}

void broadcast_bytes(World& world, std::vector<std::byte>& bytes, int root) {
  std::uint64_t length = bytes.size();
  world.broadcast(std::as_writable_bytes(std::span(&length, 1)), root);
  bytes.resize(length);
  world.broadcast(bytes, root);
}

// Only this rank reads the files; all ranks build the state from the same bytes. Collective.
LoadedCheckpoint load_on_all_ranks(World& world, int reader, const std::function<ReadCheckpoint()>& read) {
  ReadCheckpoint found;
  run_or_throw_on_all(world, [&] {
    if (world.rank() == reader) found = read();
  });
  LoadedCheckpoint& loaded = found.loaded;
  loaded.path = broadcast_text(world, loaded.path, reader);
  if (world.size() == 1 || loaded.path.empty()) return std::move(loaded);
  std::uint64_t files = found.files.size();
  world.broadcast(std::as_writable_bytes(std::span(&files, 1)), reader);
  found.files.resize(files);
  for (std::vector<std::byte>& bytes : found.files) broadcast_bytes(world, bytes, reader);
  run_or_throw_on_all(world, [&] {
    if (world.rank() != reader) loaded.state = state_in(found.files, loaded.path);
  });
  return std::move(loaded);
}

// The steps of the checkpoints in a folder whose manifest names one of these records, up to the step of that record.
std::set<std::int64_t> steps_of(const std::string& folder, const std::map<std::string, std::int64_t>& last_steps) {
  if (folder.empty()) return {};
  std::set<std::int64_t> steps = list_checkpoints(folder).complete();
  std::erase_if(steps, [&](std::int64_t step) {
    try {
      const auto record = last_steps.find(read_manifest(folder + "/" + checkpoint_file_name(step)).metrics_hash);
      return record == last_steps.end() || step > record->second;
    } catch (const Error&) {
      return true;
    }
  });
  return steps;
}

}  // namespace

ReadCheckpoint read_checkpoint(const std::string& path) {
  const Manifest manifest = read_manifest(path);
  ReadCheckpoint read;
  read.loaded.path = path;
  read.files = read_verified(manifest, path);
  read.loaded.state = state_in(read.files, path);
  return read;
}

bool is_intact(const std::string& path) {
  try {
    static_cast<void>(read_verified(read_manifest(path), path));
    return true;
  } catch (const Error&) {
    return false;
  }
}

LoadedCheckpoint load_checkpoint(const std::string& path) { return read_given(path, /*trusted=*/false).loaded; }

LoadedCheckpoint load_checkpoint(World& world, const std::string& path) {
  return load_on_all_ranks(world, 0, [&] { return read_given(path, /*trusted=*/false); });
}

void seal_checkpoint(const std::string& path, const std::string& target) {
  write_atomically(target, checkpoint_file_bytes(read_given(path, /*trusted=*/true).loaded.state));
}

std::vector<CheckpointFile> files_of(const std::string& path) {
  return has_manifest(path) ? read_manifest(path).files : std::vector<CheckpointFile>();
}

std::optional<LoadedCheckpoint> CheckpointStore::newest(World& world, const Log& log, DamagedPolicy damaged) const {
  LoadedCheckpoint loaded = load_on_all_ranks(world, 0, [&] { return find_newest(folder_, log, damaged); });
  if (loaded.path.empty()) return std::nullopt;
  return loaded;
}

std::optional<LoadedCheckpoint> newest_of_ranks(World& world, const std::string& folder, std::int64_t after,
                                                const std::map<std::string, std::int64_t>& last_steps, const Log& log) {
  std::set<std::int64_t> steps;
  run_or_throw_on_all(world, [&] { steps = steps_of(folder, last_steps); });
  while (true) {
    const std::int64_t mine = steps.empty() ? after : *steps.rbegin();
    const auto all = all_gather_values<std::int64_t>(world, std::span(&mine, 1));
    const auto newest = std::ranges::max_element(all);
    if (newest->front() <= after) return std::nullopt;
    LoadedCheckpoint loaded = load_on_all_ranks(world, static_cast<int>(newest - all.begin()), [&]() -> ReadCheckpoint {
      const std::string path = folder + "/" + checkpoint_file_name(mine);
      try {
        return read_checkpoint(path);
      } catch (const Error& error) {
        log.warn(fmt::format("skipped '{}': {}", path, error.what()));
        steps.erase(mine);
        return {};
      }
    });
    if (!loaded.path.empty()) return loaded;
  }
}

}  // namespace tutti
