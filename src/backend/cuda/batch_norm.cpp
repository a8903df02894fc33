#include "backend/cuda/batch_norm.hpp"

#include "backend/cuda/layers.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/cuda/weights.hpp"
#include "backend/requests.hpp"

namespace tutti::cuda {
namespace {

// As many as a large GPU runs at once, since each leaves partial sums.
constexpr std::int64_t kSumBlocks = 4 * 132;
constexpr std::int64_t kGradientSumBlocks = 3 * 132;

const float* values_of(const CudaWeights& weights, std::size_t index) {
  return static_cast<const float*>(weights.canonical()[index].data);
}

const CudaWeights& norm_weights(const BatchNormSpec& spec, const LayerRequest& request) {
  const CudaWeights& weights = cuda_weights(request.weights);
  weights.require(spec, request.input.shape.without_first());
  return weights;
}

class BatchNormLayer final : public Layer {
 public:
  BatchNormLayer(const Processor& processor, const BatchNormSpec& spec, const LayerRequest& request)
      : spec_(spec),
        mode_(request.mode),
        wants_input_gradient_(request.wants_input_gradient),
        output_(request.input),
        layout_(layout_of(request.input)),
        type_(format_of(request.input).type()),
        weights_(norm_weights(spec, request)),
        sums_grid_(share_rows(layout_, type_, kSumBlocks)),
        gradient_sums_grid_(share_rows(layout_, type_, kGradientSumBlocks)),
        pass_grid_(share_rows(layout_, type_, kPassBlocks)) {
    const auto channels = static_cast<std::size_t>(layout_.padded_channels);
    channel_memory_ = allocate_cuda(processor.device, channels * (2 * sizeof(double) + 5 * sizeof(float)));
    channels_.mean = static_cast<double*>(channel_memory_.data());
    channels_.variance = channels_.mean + channels;
    channels_.rounded_mean = reinterpret_cast<float*>(channels_.variance + channels);
    channels_.factor = channels_.rounded_mean + channels;
    channels_.offset = channels_.factor + channels;
    channels_.slope = channels_.offset + channels;
    channels_.gradient_offset = channels_.slope + channels;
    if (mode_ == LayerMode::evaluation) return;
    const auto chunks = static_cast<std::size_t>(std::max(sums_grid_.chunks, gradient_sums_grid_.chunks));
    partials_ = allocate_cuda(processor.device, chunks * channels * sizeof(float2));
    if (spec.relu) positive_ = allocate_cuda(processor.device, output_.bytes / kPackBytes);
  }

  const ActivationSpec& output() const override { return output_; }
  bool reads_output() const override { return false; }
  bool leaves_residual_gradient() const override { return spec_.add; }

  void forward(Stream& stream, const LayerForward& pass) override {
    const cudaStream_t cuda = native(as_cuda_stream(stream));
    const bool trains = mode_ == LayerMode::training;
    if (trains) launch_norm_sums(cuda, type_, {sums_grid_, pass.input, partials()});
    launch_norm_statistics(cuda, type_,
                           {.grid = sums_grid_,
                            .partials = trains ? partials() : nullptr,
                            .channels = layout_.channels,
                            .scale = values_of(weights_, 0),
                            .shift = values_of(weights_, 1),
                            .running_mean = values_of(weights_, 2),
                            .running_variance = values_of(weights_, 3),
                            .epsilon = BatchNormSpec::kEpsilon,
                            .result = channels_});
    launch_norm_application(cuda, type_,
                            {.grid = pass_grid_,
                             .input = pass.input,
                             .residual = spec_.add ? pass.residual : nullptr,
                             .output = pass.output,
                             .relu = spec_.relu,
                             .positive = positive(),
                             .channels = channels_});
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(mode_, pass);
    CudaStream& ours = as_cuda_stream(stream);
    const cudaStream_t cuda = native(ours);
    const GradientSum gradients = gradients_of(ours, pass, output_);
    // Written where somebody wants it, and where reading it again costs less than summing again.
    const bool several = gradients.second != nullptr;
    const bool wanted = (spec_.add && pass.residual_gradient != nullptr) || (several && wants_input_gradient_);
    void* const summed = wanted && (several || spec_.relu) ? pass.output_gradients[0] : nullptr;
    launch_norm_gradient_sums(cuda, type_,
                              {.grid = gradient_sums_grid_,
                               .gradients = gradients,
                               .input = pass.input,
                               .positive = positive(),
                               .summed = summed,
                               .rounded_mean = channels_.rounded_mean,
                               .partials = partials()});
    launch_norm_gradients(cuda, type_, gradients_of_channels(pass));
    if (!wants_input_gradient_) return;
    launch_norm_propagation(cuda, type_,
                            {.grid = pass_grid_,
                             .gradient = gradients.first,
                             .positive = summed == nullptr ? positive() : nullptr,
                             .input = pass.input,
                             .input_gradient = pass.input_gradient,
                             .channels = channels_});
  }

 private:
  float2* partials() const { return static_cast<float2*>(partials_.data()); }
  std::uint8_t* positive() const { return static_cast<std::uint8_t*>(positive_.data()); }

  NormGradients gradients_of_channels(const LayerBackward& pass) const {
    const auto gradient = [&](std::size_t index) { return static_cast<float*>(pass.gradients[index].data); };
    return {.grid = gradient_sums_grid_,
            .partials = partials(),
            .channels = layout_.channels,
            .scale = values_of(weights_, 0),
            .epsilon = BatchNormSpec::kEpsilon,
            .sample_share = pass.sample_share,
            .of = channels_,
            .scale_gradient = gradient(0),
            .shift_gradient = gradient(1),
            .mean = gradient(2),
            .variance = gradient(3)};
  }

  BatchNormSpec spec_;
  LayerMode mode_;
  bool wants_input_gradient_;
  ActivationSpec output_;
  ImageLayout layout_;
  ElementType type_;
  const CudaWeights& weights_;
  RowGrid sums_grid_;
  RowGrid gradient_sums_grid_;
  RowGrid pass_grid_;
  Buffer channel_memory_;
  NormChannels channels_;  // within that memory
  Buffer partials_;
  Buffer positive_;  // of the last output; empty without ReLU
};

}  // namespace

std::unique_ptr<Layer> make(const Processor& processor, const BatchNormSpec& spec, const LayerRequest& request) {
  if (spec.add) require_residual(spec, request);
  return std::make_unique<BatchNormLayer>(processor, spec, request);
}

}  // namespace tutti::cuda
