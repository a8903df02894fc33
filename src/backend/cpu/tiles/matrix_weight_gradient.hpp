#pragma once
// The weight gradient of a convolution as a matrix product: its rows are the output's channels, its steps the output's
// pixels, and its lanes the values under a window.

#include "backend/cpu/tiles/matrix_shape.hpp"
#include "backend/cpu/tiles/tiled_convolution.hpp"

namespace tutti::cpu {

// T is float or Bf16.
template <class T>
class MatrixWeightGradient {
 public:
  explicit MatrixWeightGradient(const MatrixShape& shape);
  void run(CpuStream& stream, const TiledBackwardWeights& pass) const;

 private:
  // Values under the windows, in lanes of a panel: adjacent channels at a place of the window.
  struct Run {
    Place place;
    std::int64_t channel, lane, count;
  };

  std::int64_t words(std::int64_t numbers) const { return ceil_div(numbers, kernels_.pack); }
  void gradient_steps(const T* gradient, std::int64_t first, std::int64_t count, float* to) const;
  void input_steps(const T* input, std::int64_t panel, std::int64_t first, std::int64_t count, float* to) const;
  void write_weights(std::int64_t panel, const float* sums, float* to) const;

  const TileKernels<T>& kernels_ = product_kernels<T>();
  MatrixShape shape_;
  std::int64_t panel_ = 2 * kernels_.lanes;
  std::vector<std::vector<Run>> runs_;  // of each panel of values
};

}  // namespace tutti::cpu
