#pragma once
// A checkpoint as files: what they are called, the bytes that hold a state, and the manifest that proves them. The
// format is described in tutti/storage/checkpoint_store.hpp.

#include "tutti/storage/array_file.hpp"
#include "tutti/storage/checkpoint_store.hpp"
#include "tutti/storage/train_state.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// The version of the checkpoint format that this program writes, and the only one that it reads.
inline constexpr std::int32_t kCheckpointFormat = 2;
// Why a checkpoint of that format is refused; empty when it is not.
std::string fault_of_format(std::int64_t version);

struct StepName {
  enum class Kind { image, manifest };

  std::int64_t step = 0;
  int file = 0;  // a manifest of a later file is there only until that of the whole is
  Kind kind = Kind::image;
  bool bad = false;

  std::string text() const {
    return fmt::format("step-{:08}{}.{}{}", step, file == 0 ? "" : fmt::format(".{}", file),
                       kind == Kind::image ? "h5" : "json", bad ? ".bad" : "");
  }
  friend bool operator==(const StepName&, const StepName&) = default;
};

inline std::string image_name(std::int64_t step, int file = 0) { return StepName{.step = step, .file = file}.text(); }
inline std::string manifest_name(std::int64_t step, int file = 0) {
  return StepName{.step = step, .file = file, .kind = StepName::Kind::manifest}.text();
}

struct StepFolder {
  std::vector<StepName> files;         // but for those marked bad
  std::vector<std::string> temporary;  // names under which a file of a checkpoint is, or was, being written
  bool any_bad = false;

  // The steps that have the manifest of the whole, ascending.
  std::set<std::int64_t> complete() const;
};

// Nothing in a folder that does not exist. Throws an io error when it cannot be listed.
StepFolder list_steps(const std::string& folder);

// What the files must look like for the checkpoint to count.
struct Manifest {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::uint64_t weights = 0;  // digest
  std::uint64_t data_digest = 0;
  std::string versions;
  std::vector<CheckpointFile> files;
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// What proves this image, which holds a share of the state.
Manifest manifest_of(const TrainState& state, std::span<const std::byte> image, std::string sha256,
                     FileShare share = {});
std::string manifest_text(const Manifest& manifest);
// Throws a checkpoint error that says what is wrong, but not where: the caller knows the file. A manifest of another
// format is refused by an input error, since it is not damaged.
Manifest parse_manifest(std::span<const std::byte> text);
// Where the manifest of a checkpoint's first file lies.
std::string manifest_path(const std::string& checkpoint_path);

// The arrays that the state holds, and all else. Built in `room`, as ArrayImage is.
std::vector<std::byte> checkpoint_image(const TrainState& state, std::vector<std::byte> room = {});
// The state whose arrays are spread over these files. Throws input errors that name the file and what is wrong:
// something missing, an impossible count, a value that is not finite, a wrong digest.
TrainState state_of(std::span<const ArrayFile> files);
// That of its parameters, as printed while training.
std::uint64_t weights_digest(const TrainState& state);

// A checkpoint's files as they were read, in order, and the state in them.
struct ReadCheckpoint {
  LoadedCheckpoint loaded;
  std::vector<std::vector<std::byte>> images;
};
// Proves the files of a checkpoint with a manifest. Throws a checkpoint error where they are not what it says, an input
// error for one of another format, or an io error where the system cannot read.
ReadCheckpoint read_checkpoint(const std::string& path);
// Whether the files are, byte for byte, what the manifest says.
bool is_proven(const std::string& path);

}  // namespace tutti
