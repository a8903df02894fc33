#include "backend/cuda/layers.hpp"
#include "backend/cuda/weighted_layer.hpp"

namespace tutti::cuda {

// The image as it lies in memory, with its padding, is the channels of one pixel: the weights are packed like filters
// that cover the whole image.
std::unique_ptr<Layer> make(const Processor& processor, const LinearSpec& spec, const LayerRequest& request) {
  const Shape& input = request.input.shape;
  const Shape sample = input.without_first();
  cuda_weights(request.weights).require(spec, sample);
  const ImageLayout images = layout_of(request.input);
  const ActivationSpec output = activation_of(output_shape(spec, sample).batch_of(input[0]), processor.type);
  const std::int64_t outputs = layout_of(output).padded_channels;
  const WeightedLayerParts parts{.convolution = {.samples = images.samples,
                                                 .channels = images.pixels() * images.padded_channels,
                                                 .height = 1,
                                                 .width = 1,
                                                 .outputs = outputs,
                                                 .precision = processor.precision},
                                 .filters = {.outputs = spec.units,
                                             .channels = images.channels,
                                             .positions = images.pixels(),
                                             .padded_outputs = outputs,
                                             .padded_channels = images.padded_channels},
                                 .output = output,
                                 .relu = spec.relu};
  return std::make_unique<WeightedLayer>(processor, parts, request);
}

}  // namespace tutti::cuda
