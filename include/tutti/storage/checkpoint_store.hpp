#pragma once
// A folder of complete checkpoints. Each is one HDF5 file (a few for very large states) and a small manifest, whose
// appearance commits the checkpoint. The HDF5 file is built in memory and written by our own code, since HDF5 can crash
// on a full disk. HDF5 can also crash on a damaged file, so bytes are verified before HDF5 reads them: by the SHA-256
// in the manifest or, for a file without a manifest, by the file's own seal.
//
// step-<8 digits>.h5, format version 2. Datasets are contiguous, little-endian and uncompressed:
//   /format_version                    i32 scalar: 2
//   /parameters/<layer>/<kind>         f32: weight (OIHW or units x inputs), bias, scale, shift
//   /statistics/<layer>/<kind>         f32: mean, variance
//   /optimizer/<slot>/<layer>/<kind>   f32, shaped as the parameter
//   /exchange/exact/levels             f32 [tensors], parameters, then statistics, from the last layer to the first:
//                                      2^n bounds the last gradients of every part; n falls by at most one a step;
//                                      1e9 if unknown; absent with other exchanges
//   /progress/epoch                    i64 scalar: completed epochs
//   /progress/step_in_epoch            i64 scalar: completed steps of the current epoch
//   /progress/step                     i64 scalar: completed steps of the run
//   /progress/skipped_steps            i64 scalar: steps among them that changed no weight; absent if none
//   /progress/samples_in_epoch         i64 scalar: samples of the epoch's order used by these steps
//   /progress/carried_over             i64 scalar: samples at the front of that order carried over from earlier epochs
//   /progress/planned_steps            i64 scalar: total steps of the run
//   /progress/learning_rate            f64 scalar: of the last step
//   /progress/seed, /progress/parts    i64 scalars
//   /progress/epoch_sums               i64 [4]: loss steps of 2^-24, correct, samples, calls not finite
//   /progress/epoch_large_losses       i64 [4]: sums of losses of 2^16 and more, in units of 2^16, 2^56, 2^96 and
//                                      2^136; absent if all are 0
//   /progress/redone_steps             i64 scalar: steps of the current epoch that were computed again on a coarser
//                                      grid; absent if none
//   /progress/epoch_seconds            f64 scalar: training time of the current epoch, seconds
//   /progress/best                     i64 [3]: step (-1: none), correct and samples of the best evaluation so far
//   /run/configuration                 text: the resolved options, TOML
//   /run/command_line                  text
//   /run/model                         text: the network, TOML
//   /run/versions                      text
//   /run/choices                       text: algorithms that devices chose by measuring; absent if none did
//   /run/data                          text, JSON: "image", the network's input shape C, H, W; "classes", their
//                                      number; "class_names", a list, empty if the data has none; in later versions
//                                      "test_digest" (null: no test data) and, for image files, "train_files" and
//                                      "test_files": the number "sampled", the digests of the "sample" and, if known,
//                                      of the "whole". Absent in the earliest versions
//   /run/data_digest                   text: 16 hexadecimal digits
//   /run/digests                       text: one line per other dataset, sorted by name: 16 hexadecimal digits (its
//                                      digest, tutti/base/digest.hpp, under its name without the first group; a
//                                      text's is that of its bytes) and its name; the last line is their sum and "all"
// The file ends with the seal of tutti/storage/array_file.hpp, which does not cover the f32 arrays: their digests are
// in /run/digests. Early versions wrote no seal. If a state is split, files 1, 2 .. are called step-<8
// digits>.<file>.h5. Each file holds some of the arrays and all other fields. Where fields differ (epoch_seconds and
// the texts of /run except the model), the first file's are used.
//
// step-<8 digits>.json, the manifest:
//   "format_version" 2, "step", "epoch", "weights" (digest of /parameters), "data_digest", "versions"
//   "files"   for each file: "file" (name), "bytes", "sha256"; early versions also listed its arrays
//   "seal"    16 hexadecimal digits: digest("manifest", all bytes before this line)
// When a resume skips a damaged checkpoint, it appends ".bad" to the names of its files.

#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/train_state.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

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

// Reads one checkpoint; arrays are sorted by name. Checks sizes, checksums, names, shapes and that all values are
// finite. Throws a checkpoint error that names the file and the fault. A file without a manifest must have a seal.
LoadedCheckpoint load_checkpoint(const std::string& path);
// The same on all ranks: rank 0 reads the files and broadcasts them. Collective.
LoadedCheckpoint load_checkpoint(World& world, const std::string& path);
// Throws an input error unless a saved checkpoint of this state could be read back. The arrays may be empty.
void check_readable(const TrainState& state);
// Rewrites the checkpoint at `path` as one sealed file. `path` itself needs no seal, so the caller must trust it: HDF5
// may crash on a damaged file. Throws a checkpoint error or a save error.
void seal_checkpoint(const std::string& path, const std::string& target);
// The files listed in a checkpoint's manifest; empty if it has no manifest.
std::vector<CheckpointFile> files_of(const std::string& path);

}  // namespace tutti
