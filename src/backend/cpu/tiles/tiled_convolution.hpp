#pragma once
// Convolutions: Winograd tiles (tile_kernels.hpp) for 3x3 windows with stride 1 over full blocks of channels, Winograd
// patches for 5x5 windows, direct loops for few channels and for groups of channels, and matrix products for all
// others. They use activations and canonical weights in place. Neither the choice between them nor the order of their
// sums depends on the processor or on the number of threads, so that all give the same bits.

#include "backend/cpu/format.hpp"
#include "backend/cpu/stream.hpp"

#include <memory>

namespace tutti::cpu {

struct TiledShape {
  Layout input;
  Layout output;
  std::int64_t window = 0;
  std::int64_t stride = 0;
  std::int64_t padding = 0;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
};

struct TiledForward {
  const void* input;
  const float* windows;  // [output][input of its group][row][column]
  const float* bias;     // or null
  void* output;
  bool relu;
};
struct TiledBackwardData {
  const void* output_gradient;
  const float* windows;
  void* input_gradient;
};
struct TiledBackwardWeights {
  const void* input;
  const void* output_gradient;
  const void* output;  // for the fused ReLU mask, else null
  float* window_gradients;
  float* bias_gradient;  // or null
};

class TiledConvolution {
 public:
  virtual ~TiledConvolution() = default;
  virtual void forward(CpuStream& stream, const TiledForward& pass) const = 0;
  virtual void backward_data(CpuStream& stream, const TiledBackwardData& pass) const = 0;
  virtual void backward_weights(CpuStream& stream, const TiledBackwardWeights& pass) const = 0;
};

// One for each pass. Both layouts are channels-last or in blocks of 16 channels, except the input of few channels.
struct TiledPasses {
  std::shared_ptr<const TiledConvolution> forward, backward_data, backward_weights;
  bool mask = false;  // backward_weights applies the ReLU mask, if there is no backward_data
};
TiledPasses choose_tiled_passes(const TiledShape& shape);

// A linear layer, y [units] from an image as a whole. The input is plain, channels-last or in blocks of 16 channels,
// and the output is f32. Gradients are in the input's type.
std::shared_ptr<const TiledConvolution> make_matrix_linear(const Layout& input, std::int64_t units);

// Any window, stride, padding and dilation. With groups of full blocks of channels, it is the convolution of the first
// one: passes are given a group's channels.
template <class T>
std::shared_ptr<const TiledConvolution> make_matrix(const TiledShape& shape);

// 5x5 windows with stride 1, any number of channels. Null for other shapes and if it does not pay off.
template <class T>
std::shared_ptr<const TiledConvolution> make_patched(const TiledShape& shape);

// Few input channels (lane_kernels.hpp): any window, stride, padding and layout of the input. It has no input gradient,
// which first layers do not need. Null for other shapes.
template <class T>
std::shared_ptr<const TiledConvolution> make_few_channel(const TiledShape& shape);
bool is_few_channel(const TiledShape& shape);

// Two or more groups of channels (lane_kernels.hpp): any window, stride, padding and dilation.
template <class T>
std::shared_ptr<const TiledConvolution> make_grouped(const TiledShape& shape);

}  // namespace tutti::cpu
