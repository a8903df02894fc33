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
  // Selects from parameters, statistics, this optimizer's state and, if there are any, averages, in this order. Without
  // a shard nothing is selected.
  ShardSelector(const std::optional<FileShard>& shard, const ParameterLayout& layout, const Optimizer& optimizer,
                bool has_averages);
  // Advances past these arrays and returns those that the file contains.
  std::vector<ParameterSlice> select_next(std::span<const ParameterSlice> next);

 private:
  std::optional<FileShard> shard_;
  std::int64_t elements_;  // of the whole state
  std::int64_t passed_ = 0;
};

// Copies these slices of `block`, each named prefix + slice name. Waits for the stream.
std::vector<NamedArray> arrays_of(Backend& backend, Stream& stream, const Tensor& block,
                                  std::span<const ParameterSlice> slices, const std::string& prefix);
// Fills these slices of `block` with the arrays of their names. Throws a checkpoint error that names the first array
// that is missing or has another shape. Waits for the stream.
void fill_slices(Backend& backend, Stream& stream, const Tensor& block, std::span<const ParameterSlice> slices,
                 const std::vector<NamedArray>& arrays);
// The same with the parameters and statistics of the state.
void fill_weights(Backend& backend, Stream& stream, const Tensor& block, const ParameterLayout& layout,
                  const TrainState& state);

// Fills parameters and statistics but those of except_head(), which are returned. Waits for the stream.
std::vector<std::string> fill_except_head(Backend& backend, Stream& stream, const ParameterArena& arena,
                                          const TrainState& state, bool new_head);

// The state of the slices that `selector` selects, each named slot + "/" + slice name. State that ranks share is
// gathered in `block`, which comes from the communicator and is as long as the gradients. (Peers keep each block of the
// communicator mapped, so a new one for every state would exhaust their mappings.) Collective. Waits for the stream.
std::vector<NamedArray> gather_state(const OptimizerContext& context, Stream& stream, const Optimizer& optimizer,
                                     ShardSelector& selector, const Tensor& block);
// Restores what this rank owns of such state. Throws as fill_weights does, on every rank. Waits for the stream.
void restore_state(const OptimizerContext& context, Stream& stream, const Optimizer& optimizer,
                   const std::vector<NamedArray>& state);

}  // namespace tutti
