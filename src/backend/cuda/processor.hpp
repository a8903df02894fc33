#pragma once
// What all layers of one backend compute with.

#include "tutti/backend/precision.hpp"
#include "tutti/backend/tensor.hpp"

namespace tutti::cuda {

class ConvolutionPlanner;

struct Processor {
  int device = 0;
  Precision precision = Precision::fp32;
  ElementType type = ElementType::f32;  // of activations within the network
  ConvolutionPlanner& planner;
};

}  // namespace tutti::cuda
