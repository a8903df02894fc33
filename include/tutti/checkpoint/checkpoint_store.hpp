#pragma once
// A folder of complete snapshots, newest last. One HDF5 file per checkpoint and a small manifest beside it,
// whose appearance makes the checkpoint count. Equal states make equal bytes: no times, arrays in order of
// their names.
//
// step-<8 digits>.h5, format version 1. Datasets are contiguous, little-endian and uncompressed:
//   /format_version                    i32 scalar: 1
//   /parameters/<layer>/<kind>         f32: weight (OIHW or units x inputs), bias, scale, shift
//   /statistics/<layer>/<kind>         f32: mean, variance
//   /optimizer/<slot>/<layer>/<kind>   f32, shaped as the parameter
//   /exchange/exact/levels             f32 [tensors], parameters, then statistics, from the last layer to the first:
//                                      2^n bounds the last gradients of every part, n sinking by at most one a step;
//                                      1e9 where nothing is known; absent with other exchanges
//   /progress/epoch                    i64 scalar: whole epochs done
//   /progress/step_in_epoch            i64 scalar: steps done of the epoch under way
//   /progress/step                     i64 scalar: steps done in all
//   /progress/epoch_sums               i64 [4]: loss steps of 2^-24, correct, samples, calls not finite
//   /progress/epoch_seconds            f64 scalar: training time of the epoch under way, seconds
//   /run/configuration                 text: the resolved options, TOML
//   /run/model                         text: the network, TOML
//   /run/versions                      text
//   /run/choices                       text: what processors chose by measuring; absent where they do not
//   /run/data_digest                   text: 16 hexadecimal digits
// step-<8 digits>.json, the manifest: "format_version" 1, "file", "bytes" and "digest" of the .h5 (16
// hexadecimal digits: digest("image", all bytes)), "step", "epoch".

#include "tutti/base/log.hpp"
#include "tutti/checkpoint/train_state.hpp"
#include "tutti/comm/world.hpp"

#include <optional>
#include <string>
#include <vector>

namespace tutti {

class CheckpointStore {
 public:
  // `folder` need not exist yet.
  explicit CheckpointStore(std::string folder);

  // True when the folder holds any checkpoint file, good or not. Throws an io error when it cannot be listed.
  bool holds_any() const;
  // The steps of all checkpoint files, good or not, ascending; throws likewise. And where that of a step lies.
  std::vector<std::int64_t> steps() const;
  std::string path_of(std::int64_t step) const;
  // Rank 0 writes the file, then the manifest; all ranks learn whether it worked and throw alike if not.
  // Collective.
  void save(World& world, const TrainState& state) const;
  // The newest checkpoint whose manifest and bytes agree; others are passed over with one warning each. Empty
  // when the folder holds none at all; throws a checkpoint error when it holds some but none is good. All
  // ranks get rank 0's finding. Collective.
  std::optional<std::string> newest(World& world, const Log& log) const;

  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

// Reads one checkpoint file; arrays come in order of their names. Throws a checkpoint error that names the
// file and what is wrong in it. The file must agree with the manifest beside it; without one it is taken on
// trust.
TrainState load_checkpoint(const std::string& path);

}  // namespace tutti
