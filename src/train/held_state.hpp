#pragma once
// The blocks of the training state of which this rank holds a whole copy, by name, and a bit of them.

#include "tutti/backend/backend.hpp"
#include "tutti/nn/parameter_arena.hpp"
#include "tutti/watch/rehearsal.hpp"

#include <span>
#include <string>
#include <vector>

namespace tutti {

// Slices are borrowed.
struct HeldBlock {
  std::string of;
  Tensor block;
  std::span<const ParameterSlice> slices;
};

std::vector<FlipTarget> tensors_of(const std::vector<HeldBlock>& blocks);
// Throws an internal error when it is not there. Waits for the stream.
void flip_bit(Backend& backend, Stream& stream, const std::vector<HeldBlock>& blocks, const BitFlip& flip);

}  // namespace tutti
