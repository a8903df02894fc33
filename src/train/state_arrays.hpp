#pragma once
// Converts blocks of parameters and optimizer state to the named host arrays of checkpoints, and back.

#include "exchange.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// Selects the arrays of a state that one of its files contains. The arrays are distributed over the files by bytes, in
// their order.
class ShardSelector {
 public:
  // `elements` is the number of elements of the whole state. Without a shard nothing is selected.
  ShardSelector(const std::optional<FileShard>& shard, std::int64_t elements) : shard_(shard), elements_(elements) {}
  // Advances past these arrays and returns those that the file contains.
  std::vector<ParameterSlice> select_next(std::span<const ParameterSlice> next);

 private:
  std::optional<FileShard> shard_;
  std::int64_t elements_;
  std::int64_t passed_ = 0;
};
// For parameters, statistics and this optimizer's state, in this order.
ShardSelector make_shard_selector(const std::optional<FileShard>& shard, const ParameterLayout& layout,
                                  const Optimizer& optimizer);

// Copies these slices of `block`, each named prefix + slice name. Waits for the stream.
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
// Fills parameters and statistics from the state of a network whose last layer may differ: its arrays may be missing or
// have another shape, are then left unchanged, and their names are returned. Throws an input error for any other array
// that is missing on one side or has another shape. Waits for the stream.
std::vector<std::string> fill_except_head(Backend& backend, Stream& stream, const LayoutBlock& weights,
                                          const TrainState& state);

// The first array with a value that is not finite; null: none.
const NamedArray* find_not_finite(const std::vector<NamedArray>& arrays);

// The owned pieces of every trained slice in turn.
std::vector<OwnedPiece> owned_pieces(const OptimizerContext& context);
// The state of the slices that `selector` selects, each named slot + "/" + slice name. Collective. Waits for the
// stream.
std::vector<NamedArray> gather_state(const OptimizerContext& context, Stream& stream, const Optimizer& optimizer,
                                     ShardSelector& selector);
// Restores what this rank owns of such state. Throws as fill_from_arrays does, on every rank. Waits for the stream.
void restore_state(const OptimizerContext& context, Stream& stream, const Optimizer& optimizer,
                   const std::vector<NamedArray>& state);

}  // namespace tutti
