#pragma once
// Our own convolutions: Winograd tiles (tile_kernels.hpp) for 3x3 windows with stride 1 over full blocks of channels,
// Winograd patches for 5x5 windows, and direct loops for few channels. They use activations and canonical weights in
// place, and divide their work independently of the number of threads, so that any number gives the same bits.

#include "backend/cpu/format.hpp"
#include "backend/cpu/stream.hpp"

#include <memory>

namespace tutti::cpu {

struct TiledShape {
  Desc input;
  Desc output;
  std::int64_t window = 0;
  std::int64_t stride = 0;
  std::int64_t padding = 0;
};

struct TiledForward {
  const void* input;
  const float* windows;  // [output][input][row][column]
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

// Passes that are not null replace oneDNN's. They are null if there is no such kernel for the shape, the layouts and
// this processor, or if oneDNN is faster.
struct TiledPasses {
  std::shared_ptr<const TiledConvolution> forward, backward_data, backward_weights;
  bool mask = false;  // backward_weights applies the ReLU mask, if there is no backward_data
};
TiledPasses choose_tiled_passes(const TiledShape& shape);

// 5x5 windows with stride 1, any number of channels, channels-last or in blocks of 16. Null for other shapes and if it
// does not pay off.
template <class T>
std::shared_ptr<const TiledConvolution> make_patched(const TiledShape& shape);

// Few input channels (lane_kernels.hpp): any window, stride and padding; outputs channels-last or in blocks of 16. It
// has no input gradient, which first layers do not need. Null for other shapes.
template <class T>
std::shared_ptr<const TiledConvolution> make_few_channel(const TiledShape& shape);

}  // namespace tutti::cpu
