#pragma once
// Blocks of parameters and of an optimizer's state as named host arrays and back: the form in which checkpoints hold
// them.

#include "exchange.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// Which arrays of a state one of its files takes: the arrays are split among the files by their bytes, in their order.
class ArrayShare {
 public:
  // `elements` are those of the whole state; without a share nothing is taken.
  ArrayShare(const std::optional<FileShare>& share, std::int64_t elements) : share_(share), elements_(elements) {}
  // Those of the next arrays that the file takes.
  std::vector<ParameterSlice> take(std::span<const ParameterSlice> next);

 private:
  std::optional<FileShare> share_;
  std::int64_t elements_;
  std::int64_t passed_ = 0;
};
// Of parameters, statistics and this optimizer's state, in this order.
ArrayShare share_arrays(const std::optional<FileShare>& share, const ParameterLayout& layout,
                        const Optimizer& optimizer);

// These slices of `block`, each named prefix + slice name. Waits for the stream.
std::vector<NamedArray> arrays_of(Backend& backend, Stream& stream, const Tensor& block,
                                  std::span<const ParameterSlice> slices, const std::string& prefix);
// Fills these slices of `block` from the arrays of those names. Throws a checkpoint error that names the first array
// that is missing or has another shape. Waits for the stream.
void fill_from_arrays(Backend& backend, Stream& stream, const Tensor& block, std::span<const ParameterSlice> slices,
                      const std::string& prefix, const std::vector<NamedArray>& arrays);

struct LayoutBlock {
  const ParameterLayout& layout;
  Tensor block;
};
// Fills all parameters and statistics from the state of a network whose last layer may differ: its arrays may be
// missing or of another shape, and stay as they are. Returns their names. Throws an input error for any other array
// that only one side has, or has in another shape. Waits for the stream.
std::vector<std::string> fill_but_for_head(Backend& backend, Stream& stream, const LayoutBlock& weights,
                                           const TrainState& state);

// The first that holds a value that is not finite; null: none does.
const NamedArray* find_not_finite(const std::vector<NamedArray>& arrays);

// Of every trained slice in turn.
std::vector<OwnedPiece> owned_pieces(const OptimizerParts& parts);
// The state of those slices that `share` takes, each named slot + "/" + slice name. Collective. Waits for the stream.
std::vector<NamedArray> gather_state(const OptimizerParts& parts, Stream& stream, const Optimizer& optimizer,
                                     ArrayShare& share);
// Restores what this rank owns of such state. Throws as fill_from_arrays does, on every rank alike. Waits for the
// stream.
void restore_state(const OptimizerParts& parts, Stream& stream, const Optimizer& optimizer,
                   const std::vector<NamedArray>& state);

}  // namespace tutti
