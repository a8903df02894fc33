#pragma once
// Checks the result of a plan against sums in f64, on a random sample of its elements. A library's notes on the
// precision of its algorithms cannot be trusted: cuDNN 9.19 has one without a note that is off by 5e-4 in fp32.

#include "backend/cuda/convolution.hpp"

#include <cstdint>
#include <vector>

namespace tutti::cuda {

// The relative error (rms of the differences by rms of the results) up to which a plan is used. Plans add in f32, each
// in its own order, so that sums of many terms are less precise.
double largest_error(ConvolutionPass pass, const ConvolutionShape& shape);

class PlanCheck {
 public:
  // Overwrites all three tensors, which are the ones of a pass, with random values in -1 .. 1: processors run faster on
  // zeros than on real activations. Their memory must outlive this.
  PlanCheck(CudaStream& stream, ConvolutionPass pass, const ConvolutionShape& shape, const ConvolutionTensors& tensors);

  // Fills the result with NaN, so that what a plan leaves unwritten is found. Asynchronous.
  void clear_result();
  // Of what is in the result now. Infinite or NaN for values that are not finite.
  double error();

 private:
  CudaStream& stream_;
  Precision precision_;
  const void* result_;
  std::size_t result_bytes_;
  std::int64_t elements_;  // of the result
  int samples_;
  Buffer values_;  // of the samples
  std::vector<double> expected_;
};

}  // namespace tutti::cuda
