#pragma once
// A folder of complete checkpoints. Each is one HDF5 file (a few for very large states) and a small manifest, whose
// appearance commits the checkpoint. The HDF5 file is built in memory and written by our own code, since HDF5 can crash
// on a full disk. HDF5 can also crash on a damaged file, so bytes are verified before HDF5 reads them: by the SHA-256
// in the manifest or, for a file without a manifest, by the file's own seal.
// docs/formats.md describes all files. Early versions wrote no seal, and more into the manifest.
// When a resume skips a damaged checkpoint, it appends ".bad" to the names of its files.

#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/train_state.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// The bytes of a checkpoint with so many bytes in so many tensors.
std::int64_t estimate_checkpoint_bytes(std::int64_t tensor_bytes, std::int64_t tensors);

// Selects the checkpoints to keep after a new one has been verified.
struct KeepRule {
  std::int64_t newest = 3;      // keep the newest N; 0: all
  std::int64_t best_step = -1;  // also keep the checkpoint of this step
  // Checkpoints of later steps are kept and not counted: the run could not read them when it resumed.
  std::int64_t last_step = std::numeric_limits<std::int64_t>::max();
};

struct SaveReport {
  std::int64_t step = 0;
  std::string path;
  std::int64_t bytes = 0;  // size of this rank's file
  double seconds = 0;
  double cpu_seconds = 0;                     // of the thread that saved it
  std::string failure{};                      // the error and its remedy; empty: saved
  std::vector<std::int64_t> evicted_steps{};  // older checkpoints that were removed to free disk space
  std::string eviction_reason{};              // the error that made this necessary; empty: nothing was evicted
  std::string prune_failure{};                // why an old checkpoint could not be removed; empty: no failure
};

// How to treat damaged checkpoints that are skipped. Only the process that has locked the folder may rename them.
enum class DamagedPolicy { rename, ignore };

struct LoadedCheckpoint {
  TrainState state;
  std::string path;
};

struct CheckpointFile {
  std::string name;  // without folder
  std::int64_t bytes = 0;
  std::string sha256;  // 64 hexadecimal digits
  friend bool operator==(const CheckpointFile&, const CheckpointFile&) = default;
};

class CheckpointStore {
 public:
  // `folder` need not exist yet. `before_write` is called before each change to the folder; it throws a save error if
  // the folder may no longer be changed.
  explicit CheckpointStore(
      std::string folder, std::function<void()> before_write = [] {});

  const std::string& folder() const { return folder_; }
  // True if the folder holds any checkpoint, including damaged and renamed ones. Throws an io error if it cannot be
  // listed.
  bool holds_any() const;
  // The steps that have a manifest, damaged or not, ascending. Throws an io error if the folder cannot be listed.
  std::vector<std::int64_t> steps() const;
  std::string path_of(std::int64_t step) const;

  // Writes and verifies this rank's file. The rank that writes file 0 waits for the other files and commits the
  // checkpoint. All ranks that write files must see the same folder. Builds the file in `buffer`, which can be reused
  // for the next save. Throws save errors.
  SaveReport save(const TrainState& state, FileShard shard = {}, std::vector<std::byte>* buffer = nullptr) const;
  // Removes checkpoints that the rule does not keep, and remnants of failed saves of older steps. Throws save errors.
  void prune(const KeepRule& keep) const;
  // Removes the oldest checkpoint before `keep.last_step`, except the best one, and returns its step. Removes nothing
  // unless a newer checkpoint has just been verified. Throws save errors.
  std::optional<std::int64_t> evict_oldest(const KeepRule& keep) const;
  // Removes unfinished files of killed processes. The folder must be locked by the caller. Throws save errors.
  void clear_leftovers() const;
  // The newest intact checkpoint, read by rank 0 and returned on all ranks. Damaged ones are skipped with one warning
  // each. Empty if the folder holds no checkpoints; throws a checkpoint error if none of them is intact. Collective.
  std::optional<LoadedCheckpoint> newest(World& world, const Log& log,
                                         DamagedPolicy damaged = DamagedPolicy::rename) const;

 private:
  std::string folder_;
  std::function<void()> before_write_;
};

// The newest intact checkpoint of a step after `after` in the folders of all ranks, which may be on their own hosts; on
// ranks without one, `folder` is empty. The rank that has it reads it, and returns it on all ranks. Only checkpoints
// whose manifest names one of the run's records `last_steps` count, up to the step of that record. Damaged ones are
// skipped with a warning. Collective.
std::optional<LoadedCheckpoint> newest_of_ranks(World& world, const std::string& folder, std::int64_t after,
                                                const std::map<std::string, std::int64_t>& last_steps, const Log& log);

// Reads one checkpoint; arrays are sorted by name. Checks sizes, checksums, names, shapes and that all values are
// finite. Throws a checkpoint error that names the file and the fault. A file without a manifest must have a seal.
LoadedCheckpoint load_checkpoint(const std::string& path);
// The same on all ranks: rank 0 reads the files and broadcasts them. Collective.
LoadedCheckpoint load_checkpoint(World& world, const std::string& path);
// Rewrites the checkpoint at `path` as one sealed file. `path` itself needs no seal, so the caller must trust it: HDF5
// may crash on a damaged file. Throws a checkpoint error or a save error.
void seal_checkpoint(const std::string& path, const std::string& target);
// The files listed in a checkpoint's manifest; empty if it has no manifest.
std::vector<CheckpointFile> files_of(const std::string& path);
// The first characters of every manifest.
inline constexpr std::string_view kManifestStart = "{\n  \"format_version\": ";

}  // namespace tutti
