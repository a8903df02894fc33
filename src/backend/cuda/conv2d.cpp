#include "backend/cuda/layers.hpp"
#include "backend/cuda/weighted_layer.hpp"

namespace tutti::cuda {

std::unique_ptr<Layer> make(const Processor& processor, const Conv2dSpec& spec, const LayerRequest& request) {
  const Shape& input = request.input.shape;
  const Shape sample = input.without_first();
  cuda_weights(request.weights).require(spec, sample);
  const ImageLayout images = layout_of(request.input);
  const ActivationSpec output = activation_of(output_shape(spec, sample).batch_of(input[0]), processor.type);
  const std::int64_t outputs = layout_of(output).padded_channels;
  const WeightedLayerParts parts{.convolution = {.samples = images.samples,
                                                 .channels = images.padded_channels,
                                                 .height = images.height,
                                                 .width = images.width,
                                                 .outputs = outputs,
                                                 .kernel_height = spec.kernel,
                                                 .kernel_width = spec.kernel,
                                                 .stride = spec.stride,
                                                 .padding = spec.padding,
                                                 .precision = processor.precision},
                                 .filters = {.outputs = spec.channels,
                                             .channels = images.channels,
                                             .positions = spec.kernel * spec.kernel,
                                             .padded_outputs = outputs,
                                             .padded_channels = images.padded_channels},
                                 .output = output,
                                 .relu = spec.relu};
  return std::make_unique<WeightedLayer>(processor, parts, request);
}

}  // namespace tutti::cuda
