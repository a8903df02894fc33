#pragma once
// Our own convolutions: by tiles (tile_kernels.hpp) for 3x3 windows with stride 1 over full blocks of channels, by
// patches for 5x5 windows, and for few values under a window. Their passes read and write activations in place, read
// windows from their canonical values, and cut their work without regard to threads, so that any number of threads
// gives the same bits.

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
  const void* output;  // clears the gradient where it is not positive; null except for passes that mask
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

// Passes that are not null replace oneDNN's: where there is such code for the shape, its layouts and this processor,
// and where it is faster.
struct TiledPasses {
  std::shared_ptr<const TiledConvolution> forward, backward_data, backward_weights;
  bool mask = false;  // backward_weights applies the mask of a max(0, y), where there is no backward_data
};
TiledPasses choose_tiled_passes(const TiledShape& shape);

// By patches: 5x5 windows with stride 1, any number of channels, which lie last or in blocks of 16. Null for other
// shapes and small ones.
template <class T>
std::shared_ptr<const TiledConvolution> make_patched(const TiledShape& shape);

// With few values under the window (lane_kernels.hpp): any window, stride and padding, outputs that lie last or in
// blocks of 16. It has no gradient of the input, which first layers do not need. Null for other shapes.
template <class T>
std::shared_ptr<const TiledConvolution> make_thin(const TiledShape& shape);

}  // namespace tutti::cpu
