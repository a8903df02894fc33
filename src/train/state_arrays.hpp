#pragma once
// Blocks of parameters and of an optimizer's state as named host arrays and back: the form in which checkpoints hold
// them.

#include "tutti/backend/backend.hpp"
#include "tutti/checkpoint/train_state.hpp"
#include "tutti/nn/parameter_arena.hpp"
#include "tutti/train/optimizer.hpp"

#include <span>
#include <string>
#include <vector>

namespace tutti {

// These slices of `block`, each named prefix + slice name. Waits for the stream.
std::vector<NamedArray> arrays_of(Backend& backend, Stream& stream, const Tensor& block,
                                  std::span<const ParameterSlice> slices, const std::string& prefix);
// Fills these slices of `block` from the arrays of those names. Throws a checkpoint error that names the first array
// that is missing or has another shape. Waits for the stream.
void fill_from_arrays(Backend& backend, Stream& stream, const Tensor& block, std::span<const ParameterSlice> slices,
                      const std::string& prefix, const std::vector<NamedArray>& arrays);

// The state of all elements, each named slot + "/" + slice name, alike on every rank. Collective. Waits for the stream.
std::vector<NamedArray> gather_state(const OptimizerParts& parts, Stream& stream, const Optimizer& optimizer);
// What this rank owns of such state. Throws as fill_from_arrays does, on every rank alike. Waits for the stream.
void restore_state(const OptimizerParts& parts, Stream& stream, const Optimizer& optimizer,
                   const std::vector<NamedArray>& state);

}  // namespace tutti
