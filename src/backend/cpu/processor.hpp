#pragma once
// What all layers of one backend compute with.

#include <dnnl.hpp>

namespace tutti::cpu {

struct Processor {
  dnnl::engine engine;
  dnnl::memory::data_type type = dnnl::memory::data_type::f32;  // of activations and weights inside the layers
  bool tiles = true;                                            // convolutions may go by tiles
};

}  // namespace tutti::cpu
