#pragma once
// Blocks of parameters and of an optimizer's state as named host arrays and back: the form in which checkpoints hold
// them.

#include "tutti/backend/backend.hpp"
#include "tutti/checkpoint/train_state.hpp"
#include "tutti/nn/parameter_arena.hpp"
#include "tutti/train/optimizer.hpp"

#include "ownership.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// The arrays of a state are shared out among its files by their bytes, in their order: each file gets a stretch.
class ArrayDeal {
 public:
  // Of so many elements in all; without a share nothing is taken.
  ArrayDeal(const std::optional<FileShare>& share, std::int64_t elements) : share_(share), elements_(elements) {}
  // Those of the next arrays that the share takes.
  std::vector<ParameterSlice> take(std::span<const ParameterSlice> next);

 private:
  std::optional<FileShare> share_;
  std::int64_t elements_;
  std::int64_t dealt_ = 0;
};
// Of parameters, statistics and this optimizer's state, in this order.
ArrayDeal deal_arrays(const std::optional<FileShare>& share, const ParameterLayout& layout, const Optimizer& optimizer);

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
// All parameters and statistics, from a state of a network that may end otherwise: arrays of the last layer may be
// missing or of another shape, and stay as they are. Returns their names. Throws an input error for any other array, on
// either side, that the other has not or has of another shape. Waits for the stream.
std::vector<std::string> fill_but_for_head(Backend& backend, Stream& stream, const LayoutBlock& weights,
                                           const TrainState& state);

// The first that holds a value that is not finite; null: none does.
const NamedArray* find_not_finite(const std::vector<NamedArray>& arrays);

// Of every trained slice in turn.
std::vector<OwnedPiece> owned_pieces(const OptimizerParts& parts);
// The state of those elements that `deal` takes, each named slot + "/" + slice name. Collective. Waits for the stream.
std::vector<NamedArray> gather_state(const OptimizerParts& parts, Stream& stream, const Optimizer& optimizer,
                                     ArrayDeal& deal);
// Likewise, of all elements.
std::vector<NamedArray> gather_state(const OptimizerParts& parts, Stream& stream, const Optimizer& optimizer);
// What this rank owns of such state. Throws as fill_from_arrays does, on every rank alike. Waits for the stream.
void restore_state(const OptimizerParts& parts, Stream& stream, const Optimizer& optimizer,
                   const std::vector<NamedArray>& state);

}  // namespace tutti
