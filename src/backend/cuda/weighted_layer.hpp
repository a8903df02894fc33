#pragma once
// Any layer that is a convolution, a bias and ReLU: what its passes have in common on a GPU.

#include "backend/cuda/bias_kernels.hpp"
#include "backend/cuda/convolution.hpp"
#include "backend/cuda/format.hpp"
#include "backend/cuda/weights.hpp"

#include <memory>

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

class WeightedLayer final : public Layer {
 public:
  WeightedLayer(const Processor& processor, const WeightedLayerParts& parts, const LayerRequest& request);

  const ActivationSpec& output() const override { return parts_.output; }
  bool reads_output() const override { return parts_.relu; }
  void forward(Stream& stream, const LayerForward& pass) override;
  void backward(Stream& stream, const LayerBackward& pass) override;

 private:
  void form_output_gradient(CudaStream& stream, const LayerBackward& pass, float* partials) const;

  WeightedLayerParts parts_;
  ElementType type_;
  LayerMode mode_;
  ImageLayout layout_;  // of the output
  RowGrid grid_;        // over it
  void* filters_;       // Borrowed
  const float* bias_;   // Borrowed; null without
  std::unique_ptr<ConvolutionPlan> forward_;
  std::unique_ptr<ConvolutionPlan> weight_gradient_;  // null in evaluation
  std::unique_ptr<ConvolutionPlan> input_gradient_;   // null when none is wanted
  // Within the scratch memory of the backward pass, which begins with that of the plans.
  std::size_t gradient_offset_ = 0;
  std::size_t partials_offset_ = 0;
  std::size_t backward_scratch_ = 0;
};

}  // namespace tutti::cuda
