#pragma once
// The names and contents of a checkpoint's files, and the manifest with their checksums. docs/formats.md describes the
// format.

#include "tutti/storage/array_file.hpp"
#include "tutti/storage/checkpoint_store.hpp"
#include "tutti/storage/train_state.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace tutti {

struct CheckpointFileName {
  std::int64_t step = 0;
  int file = 0;  // manifests of files 1, 2 .. are partial: they exist only until the checkpoint is committed
  bool is_manifest = false;
  bool bad = false;

  std::string text() const {
    return fmt::format("step-{:08}{}.{}{}", step, file == 0 ? "" : fmt::format(".{}", file),
                       is_manifest ? "json" : "h5", bad ? ".bad" : "");
  }
  friend bool operator==(const CheckpointFileName&, const CheckpointFileName&) = default;
};

inline std::string checkpoint_file_name(std::int64_t step, int file = 0) {
  return CheckpointFileName{.step = step, .file = file}.text();
}
inline std::string manifest_name(std::int64_t step, int file = 0) {
  return CheckpointFileName{.step = step, .file = file, .is_manifest = true}.text();
}

struct CheckpointListing {
  std::vector<CheckpointFileName> files;  // without those renamed to .bad
  std::vector<std::string> temporary;     // temporary names of checkpoint files that are, or were, being written
  bool any_bad = false;

  // The steps that have a complete manifest, ascending.
  std::set<std::int64_t> complete() const;
};

// Empty if the folder does not exist. Throws an io error if it cannot be listed.
CheckpointListing list_checkpoints(const std::string& folder);
// The path of a checkpoint's manifest, given that of its first file.
std::string manifest_path(const std::string& checkpoint_path);

// The checkpoint format version that this program reads and writes.
inline constexpr std::int32_t kCheckpointFormat = 2;
// Manifests of format 2 also had the epoch, versions and a digest of their own text, which are ignored.
inline constexpr std::int32_t kManifestFormat = 3;
// Why a checkpoint of this format version is refused; empty if it is accepted. `newest` is the one that is written.
std::string fault_of_format(std::int64_t version, std::int64_t newest = kCheckpointFormat);

// The files of a checkpoint, by which they are verified. Audits compare the other fields with the run's records.
struct Manifest {
  std::int64_t step = 0;
  std::uint64_t weights = 0;  // digest
  std::uint64_t data_digest = 0;
  std::string metrics_hash{};  // of the run's last record at that time; empty if there is none
  std::vector<CheckpointFile> files;
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// The manifest of one file with these contents, which hold some of the state's arrays.
Manifest manifest_of(const TrainState& state, std::span<const std::byte> contents, std::string sha256,
                     FileShard shard = {});
std::string manifest_text(const Manifest& manifest);
// Throws a checkpoint error that describes the fault; the caller adds the file's name. For a manifest of another format
// version, which is not damaged, throws an input error.
Manifest parse_manifest(std::span<const std::byte> text);

// The contents of a checkpoint file with all of this state. Reuses the memory of `buffer`.
std::vector<std::byte> checkpoint_file_bytes(const TrainState& state, std::vector<std::byte> buffer = {});
// Reads a state from these files, each of which holds some of its arrays. Throws input errors that name the file and
// the fault: missing data, an invalid count, a non-finite value or a wrong digest.
TrainState state_of(std::span<const ArrayFile> files);
// The digest of the parameters, as printed during training.
std::uint64_t weights_digest(const TrainState& state);

// The state of a checkpoint and the contents of its files, in order.
struct ReadCheckpoint {
  LoadedCheckpoint loaded;
  std::vector<std::vector<std::byte>> files;
};
// Reads a checkpoint and verifies its files against its manifest. Throws a checkpoint error if they differ, an input
// error for another format version, or an io error if a file cannot be read.
ReadCheckpoint read_checkpoint(const std::string& path);
// Whether all files match the manifest's sizes and checksums.
bool is_intact(const std::string& path);

}  // namespace tutti
