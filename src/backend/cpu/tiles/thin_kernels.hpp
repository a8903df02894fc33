#pragma once
// The loops of convolutions with few values under a window, as the first of a network is: sums of many outputs are kept
// in registers, and nothing is rearranged but the input, which lies in f32, channels last, with its padding.

#include "backend/cpu/element.hpp"
#include "backend/cpu/tiles/lane_image.hpp"

namespace tutti::cpu {

// Where the values under a window lie: `rows` runs of `run` values.
struct ThinWindow {
  std::int64_t rows, run;
  std::int64_t row;                    // from one row of the input to the next one
  std::int64_t next_row, next_column;  // from one output's window to the next one's
};

template <class T>
struct ThinForwardPass {
  ThinWindow window;
  const float* input;
  const float* weights;  // [panel][value][lane]
  const float* bias;     // [lane of all panels]
  LaneImage<T> output;
  bool relu;
};

// The sums over one image's outputs of gradient x value, and of the gradient, where the output was positive.
template <class T>
struct ThinWeightsPass {
  ThinWindow window;
  const float* input;
  LaneImage<const T> gradient;
  const T* output;  // of the same layout; null: taken for positive
  float* sums;      // [panel][value, and then 1][lane]
};

template <class T>
struct ThinKernels {
  void (*forward)(const ThinForwardPass<T>&);
  void (*backward_weights)(const ThinWeightsPass<T>&);
};

inline constexpr std::int64_t kMostThinValues = 32;

template <class T>
const ThinKernels<T>& thin_kernels_avx512();

}  // namespace tutti::cpu
