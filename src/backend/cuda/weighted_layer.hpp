#pragma once
// Layers that are a convolution, a bias and ReLU: what their specs come to.

#include "backend/cuda/convolution.hpp"
#include "backend/cuda/weights.hpp"

namespace tutti::cuda {

struct WeightedLayerParts {
  ConvolutionShape convolution;
  FilterLayout filters;
  ActivationSpec output;
  bool relu = false;
};

// What the specs come to in this precision, on an input within the network.
WeightedLayerParts parts_of(Precision precision, const Conv2dSpec& spec, const ActivationSpec& input);
WeightedLayerParts parts_of(Precision precision, const LinearSpec& spec, const ActivationSpec& input);

}  // namespace tutti::cuda
