#pragma once
// The passes of every layer of the kind y = w * x + b with an optional max(0, y), whatever `*` is. The
// layer's own file plans the primitives; what is the same for all lives here: layouts, weights, the mask,
// canonical gradients.

#include "backend/cpu/staging.hpp"
#include "backend/cpu/tiles/tiled_convolution.hpp"
#include "backend/cpu/weights.hpp"

#include <functional>
#include <memory>
#include <optional>

namespace tutti::cpu {

struct WeightedPlans {
  dnnl::primitive_desc_base forward;
  std::optional<dnnl::primitive_desc_base> backward_weights;  // reads the input in the forward's layout
  std::optional<dnnl::primitive_desc_base> backward_data;
  TiledPasses tiled{};  // instead of these, over the same layouts
};

struct WeightedLayerParts {
  WeightedPlans plans;
  ActivationSpec input;
  Shape output;
  bool bias = false;
  bool relu = false;
};

class WeightedLayer final : public Layer {
 public:
  WeightedLayer(const dnnl::engine& engine, const WeightedLayerParts& parts, CpuWeights& weights);

  const ActivationSpec& output() const override { return output_; }
  bool reads_output() const override { return reads_output_; }
  void forward(Stream& stream, const LayerForward& pass) override;
  void backward(Stream& stream, const LayerBackward& pass) override;

 private:
  using Run = std::function<void(CpuStream&)>;
  struct WeightPass {
    StagedInput output_gradient;
    StagedOutput weight_gradient;
    std::optional<Placed> bias_gradient;
    Run run;
  };
  struct DataPass {
    StagedInput output_gradient;
    StagedOutput input_gradient;
    Run run;
  };

  Run make_forward(const dnnl::engine& engine, const WeightedLayerParts& parts, CpuWeights& weights) const;
  WeightPass make_weight_pass(const dnnl::engine& engine, const WeightedLayerParts& parts) const;
  DataPass make_data_pass(const dnnl::engine& engine, const WeightedLayerParts& parts, CpuWeights& weights) const;

  ActivationSpec output_;
  StagedInput input_;
  Placed result_;
  Placed result_gradient_;
  Run forward_;
  bool reads_output_;
  std::optional<ReluMask> mask_;
  std::optional<WeightPass> weight_pass_;
  std::optional<DataPass> data_pass_;
};

}  // namespace tutti::cpu
