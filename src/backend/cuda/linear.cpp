#include "backend/cuda/layers.hpp"
#include "backend/cuda/weighted_layer.hpp"

namespace tutti::cuda {

// The image as it lies in memory, with its padding, is the channels of one pixel: the weights are packed like filters
// that cover the whole image.
WeightedLayerParts parts_of(Precision precision, const LinearSpec& spec, const ActivationSpec& input) {
  const ImageLayout images = layout_of(input);
  const Shape output = output_shape(spec, input.shape.without_first()).batch_of(images.samples);
  const ActivationSpec activation = activation_of(output, format_of(input).type());
  const std::int64_t outputs = layout_of(activation).padded_channels;
  return {.convolution = {.samples = images.samples,
                          .channels = images.pixels() * images.padded_channels,
                          .height = 1,
                          .width = 1,
                          .outputs = outputs,
                          .precision = precision},
          .filters = {.outputs = spec.units,
                      .channels = images.channels,
                      .positions = images.pixels(),
                      .padded_outputs = outputs,
                      .padded_channels = images.padded_channels},
          .output = activation,
          .relu = spec.relu};
}

std::unique_ptr<Layer> make(const Processor& processor, const LinearSpec& spec, const LayerRequest& request) {
  cuda_weights(request.weights).require(spec, request.input.shape.without_first());
  return std::make_unique<WeightedLayer>(processor, parts_of(processor.precision, spec, request.input), request);
}

}  // namespace tutti::cuda
