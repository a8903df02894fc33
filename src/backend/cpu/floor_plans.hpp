#pragma once
// The library's primitives for one layer, planned over every layout that may be the fastest.

#include "tutti/backend/library_floor.hpp"

#include "backend/cpu/format.hpp"

#include <vector>

namespace tutti::cpu {

struct FloorPass {
  double PrimitiveTimes::*seconds;
  dnnl::primitive_desc_base plan;
};
using FloorPasses = std::vector<FloorPass>;  // of one layer over one layout, the forward pass first

// Empty where the library has none.
std::vector<FloorPasses> plan_floor(const dnnl::engine& engine, Type type, const FloorLayer& layer);

}  // namespace tutti::cpu
