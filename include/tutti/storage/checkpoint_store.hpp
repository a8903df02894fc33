#pragma once
// A folder of complete checkpoints. Each is one HDF5 file, a few for very large states, and a small manifest, whose
// appearance makes it count. The file is made in memory and written by our own code, since HDF5 can crash on a full
// disk. HDF5 can also crash on a damaged file, so it reads bytes only once they are proven: by the SHA-256 in the
// manifest or, where a file was taken without its manifest, by the file's own seal.
//
// step-<8 digits>.h5, format version 2. Datasets are contiguous, little-endian and uncompressed:
//   /format_version                    i32 scalar: 2
//   /parameters/<layer>/<kind>         f32: weight (OIHW or units x inputs), bias, scale, shift
//   /statistics/<layer>/<kind>         f32: mean, variance
//   /optimizer/<slot>/<layer>/<kind>   f32, shaped as the parameter
//   /exchange/exact/levels             f32 [tensors], parameters, then statistics, from the last layer to the first:
//                                      2^n bounds the last gradients of every part, n sinking by at most one a step;
//                                      1e9 where nothing is known; absent with other exchanges
//   /progress/epoch                    i64 scalar: whole epochs done
//   /progress/step_in_epoch            i64 scalar: steps done of the epoch under way
//   /progress/step                     i64 scalar: steps done in all
//   /progress/skipped_steps            i64 scalar: of them, those that have changed nothing; absent where none has
//   /progress/samples_in_epoch         i64 scalar: of the epoch's order, taken by these steps
//   /progress/carried_over             i64 scalar: samples at the front of that order that earlier epochs left over
//   /progress/planned_steps            i64 scalar: of the whole run
//   /progress/learning_rate            f64 scalar: of the last step
//   /progress/seed, /progress/parts    i64 scalars
//   /progress/epoch_sums               i64 [4]: loss steps of 2^-24, correct, samples, calls not finite
//   /progress/epoch_seconds            f64 scalar: training time of the epoch under way, seconds
//   /progress/best                     i64 [3]: step (-1: none), correct and samples of the best evaluation so far
//   /run/configuration                 text: the resolved options, TOML
//   /run/command_line                  text
//   /run/model                         text: the network, TOML
//   /run/versions                      text
//   /run/choices                       text: what processors chose by measuring; absent where they do not
//   /run/data                          text: "image", the extents C, H, W that the network gets, "classes", their
//                                      number, and "class_names", a list, empty where the data named none, as JSON;
//                                      absent from what early versions saved; and since later, "test_digest" (null:
//                                      no test set) and, for image files, "train_files" and "test_files": how many
//                                      were "sampled", the digest of that "sample" and of the "whole", where known
//   /run/data_digest                   text: 16 hexadecimal digits
//   /run/digests                       text: a line for every other dataset of the file, in order of their names, 16
//                                      hexadecimal digits, those of tutti/base/digest.hpp under its name without the
//                                      first group's (of a text: of its bytes), and its name; then their sum and "all"
// Behind what HDF5 has written lies the seal of tutti/storage/array_file.hpp, which leaves out the arrays of f32: their
// digests are in /run/digests. Early versions wrote none.
// Files 1, 2 .. of a state in several are called step-<8 digits>.<file>.h5; the arrays are shared out, all else is in
// each; of what may differ, epoch_seconds and the texts of /run but for the model, those of the first file count.
//
// step-<8 digits>.json, the manifest:
//   "format_version" 2, "step", "epoch", "weights" (digest of /parameters), "data_digest", "versions"
//   "files"   of each: "file" (name), "bytes", "sha256"; early versions wrote a table of its arrays as well
//   "seal"    16 hexadecimal digits: digest("manifest", all bytes before this line)
// A damaged checkpoint that a resume has passed over is renamed, with ".bad" behind its names.

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

// Which checkpoints stay when a new one has been proven good.
struct KeepRule {
  std::int64_t newest = 3;      // so many; 0: all
  std::int64_t best_step = -1;  // and that of this step
  // Those of later steps, which only a run that could not read them has passed over, stay and do not count.
  std::int64_t last_step = std::numeric_limits<std::int64_t>::max();
};

struct SaveReport {
  std::int64_t step = 0;
  std::string path;
  std::int64_t bytes = 0;  // of this rank's file
  double seconds = 0;
  std::string failure{};                 // why it failed, and the remedy; empty: it is good
  std::vector<std::int64_t> given_up{};  // steps of older ones that were removed to make room for it
  std::string no_room{};                 // why that had to be; empty: it had not
  std::string prune_failure{};           // why one that is no longer to be kept could not be removed; likewise
};

// What becomes of damaged checkpoints that are passed over; only whoever has the folder alone may mark them bad.
enum class Damaged { marked, left };

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
  // `folder` need not exist yet. `before_write` is called before anything is changed there, and throws a save error
  // where that must no longer be.
  explicit CheckpointStore(
      std::string folder, std::function<void()> before_write = [] {});

  const std::string& folder() const { return folder_; }
  // True when the folder holds any checkpoint, good or not, those marked bad included. Throws an io error when it
  // cannot be listed.
  bool holds_any() const;
  // The steps of all that have a manifest, good or not, ascending; throws likewise. And where that of a step lies.
  std::vector<std::int64_t> steps() const;
  std::string path_of(std::int64_t step) const;

  // Makes this rank's file, proves it, and (file 0, which waits for the others) commits the whole. Throws save errors.
  // The others of several files lie in the same folder, seen by all who make them. The file is made in `room`, which
  // the next save finds as large as it needs.
  SaveReport save(const TrainState& state, FileShare share = {}, std::vector<std::byte>* room = nullptr) const;
  // Removes what is no longer to be kept, and what is left of older steps whose saves have failed. Throws save errors.
  void prune(const KeepRule& keep) const;
  // Removes the oldest checkpoint before `keep.last_step`, whatever is to be kept but for the best one, and returns its
  // step; nothing where no later one is proven good now. Throws save errors.
  std::optional<std::int64_t> give_up_oldest(const KeepRule& keep) const;
  // Removes what saves of killed processes have left unfinished. For whoever has the folder alone. Throws save errors.
  void clear_leftovers() const;
  // The newest good checkpoint, read by rank 0 and alike on all ranks. Damaged ones are passed over with one warning
  // each. Empty when the folder holds none at all; throws a checkpoint error when it holds some but none is good.
  // Collective.
  std::optional<LoadedCheckpoint> newest(World& world, const Log& log, Damaged damaged = Damaged::marked) const;

 private:
  std::string folder_;
  std::function<void()> before_write_;
};

// Reads one checkpoint; arrays come in order of their names. Everything is checked: sizes, checksums, names, shapes,
// finite values. Throws a checkpoint error that names the file and what is wrong in it. A file without a manifest
// beside it needs its seal.
LoadedCheckpoint load_checkpoint(const std::string& path);
// Likewise, alike on all ranks: rank 0 reads the files. Collective.
LoadedCheckpoint load_checkpoint(World& world, const std::string& path);
// Throws an input error unless what a save of such a state writes would be read back. Values do not matter: its arrays
// may be empty.
void check_readable(const TrainState& state);
// Writes it as one sealed file. It needs no seal itself: for whoever trusts it, since HDF5 may crash on a damaged one.
// Throws a checkpoint error or a save error.
void seal_checkpoint(const std::string& path, const std::string& target);
// The files of a checkpoint that loads, as its manifest has them; none without one.
std::vector<CheckpointFile> files_of(const std::string& path);

}  // namespace tutti
