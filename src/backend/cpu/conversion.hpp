#pragma once
// Copies of activations between layouts and types.

#include "backend/cpu/format.hpp"
#include "backend/cpu/stream.hpp"

namespace tutti::cpu {

struct StoredActivation {
  const Layout& layout;
  void* values;
};

// Both have the same shape.
void convert_activation(CpuStream& stream, const StoredActivation& from, const StoredActivation& to);

}  // namespace tutti::cpu
