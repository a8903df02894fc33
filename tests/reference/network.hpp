#pragma once
// A whole network by the definitions of its layers: loss, gradients and statistics of one batch, in double.

#include "tutti/base/random.hpp"
#include "tutti/nn/network.hpp"

#include "reference/layer.hpp"
#include "reference/softmax_loss.hpp"

namespace tutti::reference {

struct NetworkBatch {
  Array images;
  std::vector<std::int32_t> labels;
  double gradient_scale = 1;
  double sample_fraction = 1;
  BatchPosition place{};
};

class NetworkDouble {
 public:
  // `slices` hold the values of every slice of the layout. Borrowed.
  NetworkDouble(const Network& network, const std::vector<Array>& slices) : network_(network), slices_(slices) {}

  // The sum over the samples.
  double loss(const NetworkBatch& batch, LayerMode mode) const {
    return softmax_loss(outputs(batch, mode).back(), batch.labels, 1).loss;
  }

  // By slice: gradients, and each statistic times the batch's share.
  std::vector<Array> gradients(const NetworkBatch& batch) const {
    const std::vector<Array> values = outputs(batch, LayerMode::training);
    std::vector<Array> gradients;
    for (const Array& output : values) gradients.emplace_back(output.shape);
    gradients.back().values = softmax_loss(values.back(), batch.labels, batch.gradient_scale).gradient;
    std::vector<Array> result = slices_;
    for (std::size_t i = values.size(); i-- > 0;) {
      const NetworkLayer& layer = network_.layers()[i];
      const Gradients back = layer_backward(layer.spec,
                                            {.input = source(layer.from, batch, values),
                                             .output = values[i],
                                             .output_gradient = gradients[i],
                                             .place = batch.place,
                                             .random_purpose = random_purpose(layer.name),
                                             .sample_fraction = batch.sample_fraction},
                                            parameters_of(layer));
      add(gradients, layer.from, back.input);
      if (back.residual) add(gradients, layer.residual_from, *back.residual);
      for (std::size_t p = 0; p < back.parameters.size(); ++p) {
        result.at(static_cast<std::size_t>(layer.parameters[p])) = back.parameters[p];
      }
    }
    return result;
  }

 private:
  static const Array& source(int layer, const NetworkBatch& batch, const std::vector<Array>& outputs) {
    return layer == kImage ? batch.images : outputs.at(static_cast<std::size_t>(layer));
  }

  std::vector<Array> parameters_of(const NetworkLayer& layer) const {
    std::vector<Array> parameters;
    for (const int slice : layer.parameters) parameters.push_back(slices_.at(static_cast<std::size_t>(slice)));
    return parameters;
  }

  std::vector<Array> outputs(const NetworkBatch& batch, LayerMode mode) const {
    std::vector<Array> values;
    for (const NetworkLayer& layer : network_.layers()) {
      const Array& residual = source(layer.residual_from, batch, values);
      values.push_back(layer_forward(layer.spec,
                                     {.input = source(layer.from, batch, values),
                                      .residual = takes_residual(layer.spec) ? &residual : nullptr,
                                      .mode = mode,
                                      .place = batch.place,
                                      .random_purpose = random_purpose(layer.name)},
                                     parameters_of(layer)));
    }
    return values;
  }

  static void add(std::vector<Array>& gradients, int layer, const Array& gradient) {
    if (layer == kImage) return;
    Array& sum = gradients.at(static_cast<std::size_t>(layer));
    for (std::int64_t i = 0; i < sum.shape.elements(); ++i) sum[i] += gradient[i];
  }

  const Network& network_;
  const std::vector<Array>& slices_;
};

}  // namespace tutti::reference
