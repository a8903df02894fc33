#include "backend/cuda/layers.hpp"
#include "backend/cuda/weighted_layer.hpp"

namespace tutti::cuda {

WeightedLayerParts parts_of(Precision precision, const Conv2dSpec& spec, const ActivationSpec& input) {
  const ImageLayout images = layout_of(input);
  const Shape output = output_shape(spec, input.shape.without_first()).batch_of(images.samples);
  const ActivationSpec activation = activation_of(output, format_of(input).type());
  const std::int64_t outputs = layout_of(activation).padded_channels;
  return {.convolution = {.samples = images.samples,
                          .channels = images.padded_channels,
                          .height = images.height,
                          .width = images.width,
                          .outputs = outputs,
                          .kernel_height = spec.kernel,
                          .kernel_width = spec.kernel,
                          .stride = spec.stride,
                          .padding = spec.padding,
                          .precision = precision},
          .filters = {.outputs = spec.channels,
                      .channels = images.channels,
                      .positions = spec.kernel * spec.kernel,
                      .padded_outputs = outputs,
                      .padded_channels = images.padded_channels},
          .output = activation,
          .relu = spec.relu};
}

std::unique_ptr<Layer> make(const Processor& processor, const Conv2dSpec& spec, const LayerRequest& request) {
  cuda_weights(request.weights).require(spec, request.input.shape.without_first());
  return std::make_unique<WeightedLayer>(processor, parts_of(processor.precision, spec, request.input), request);
}

}  // namespace tutti::cuda
