#pragma once
// Measures ways to compute one convolution on the GPU, with memory of its own.

#include "backend/cuda/convolution.hpp"

#include <functional>

namespace tutti::cuda {

class PlanSearch {
 public:
  // Random values in all tensors of the shape, and so many bytes of scratch memory.
  PlanSearch(int device, const ConvolutionShape& shape, std::size_t scratch_bytes);

  // Whether the device has memory for such a search now.
  static bool has_room(int device, const ConvolutionShape& shape, std::size_t scratch_bytes);

  // Of one run; infinite where it fails.
  float milliseconds(ConvolutionPlan& plan);

 private:
  std::unique_ptr<CudaStream> stream_;
  Buffer input_;
  Buffer filters_;
  Buffer output_;
  Buffer scratch_;
  Buffer between_;  // written between runs
};

}  // namespace tutti::cuda
