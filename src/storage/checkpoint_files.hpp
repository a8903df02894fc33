#pragma once
// The names of a checkpoint's files, and the checkpoints in a folder.

#include <fmt/format.h>

#include <cstdint>
#include <set>
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

}  // namespace tutti
