#include "held_state.hpp"

#include "tutti/base/error.hpp"

#include "elements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace tutti {
namespace {

Tensor element_of(const std::vector<HeldBlock>& blocks, const BitFlip& flip) {
  for (const HeldBlock& held : blocks) {
    if (held.of != flip.of) continue;
    const auto slice = std::ranges::find(held.slices, flip.tensor, &ParameterSlice::name);
    if (slice == held.slices.end() || flip.element >= slice->elements()) continue;
    const std::int64_t place = slice->offset + flip.element;
    return elements_of(held.block, {place, place + 1});
  }
  throw Error(ErrorSource::internal, fmt::format("no element {} of {} {}", flip.element, flip.of, flip.tensor));
}

}  // namespace

std::vector<FlipTarget> tensors_of(const std::vector<HeldBlock>& blocks) {
  std::vector<FlipTarget> tensors;
  for (const HeldBlock& held : blocks) {
    for (const ParameterSlice& slice : held.slices) tensors.push_back({held.of, slice.name, slice.elements()});
  }
  return tensors;
}

void flip_bit(Backend& backend, Stream& stream, const std::vector<HeldBlock>& blocks, const BitFlip& flip) {
  const Tensor element = element_of(blocks, flip);
  std::uint32_t bits = 0;
  const Tensor on_host{&bits, Shape{1}, ElementType::f32, MemorySpace::host};
  backend.copy(stream, on_host, element);
  stream.synchronize();
  bits ^= std::uint32_t{1} << flip.bit;
  backend.copy(stream, element, on_host);
  stream.synchronize();
}

}  // namespace tutti
