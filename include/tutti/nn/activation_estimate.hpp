#pragma once
// What a pass over a network needs for activations and their gradients, by shapes alone: before a processor is asked,
// which may store them otherwise.

#include "tutti/backend/layer.hpp"
#include "tutti/nn/network.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti {

struct PassSize {
  std::int64_t samples = 0;
  LayerMode mode = LayerMode::training;
  std::size_t bytes_per_value = sizeof(float);
};

std::size_t estimate_activations(const Network& network, const PassSize& pass);

}  // namespace tutti
