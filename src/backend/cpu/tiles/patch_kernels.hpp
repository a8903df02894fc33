#pragma once
// The loops of convolutions by patches: what a tile of 3x3 outputs takes from the input under a 5x5 window, 7x7 values.
// As with the tiles of tile_kernels.hpp, patches, windows and outputs are brought to points, where a convolution is
// a product of matrices. The ways back are the same steps transposed, so that no pass has more tiles than the forward
// one.
// Matrices lie point after point, `point_stride` apart; the channels of an activation need not fill its blocks.

#include "backend/cpu/element.hpp"
#include "backend/cpu/tiles/lane_image.hpp"

namespace tutti::cpu {

inline constexpr int kPatchTile = 3;
inline constexpr int kPatchWindow = 5;
inline constexpr int kPatchSide = kPatchTile + kPatchWindow - 1;
inline constexpr int kPatchPoints = kPatchSide * kPatchSide;
inline constexpr int kPatchTaps = kPatchWindow * kPatchWindow;

struct PatchGrid {
  std::int64_t down, across;  // tiles of an image
  std::int64_t padding;       // that the first patch reaches beyond the input
};

// Between an image and the points of its tiles, points[point][tile][lane]: `blocks` of lanes, `first_block` first.
template <class T>
struct PatchPass {
  LaneImage<T> image;
  PatchGrid grid;
  std::int64_t first_block, blocks;
  float* points;
  std::int64_t point_stride;
};

template <class T>
struct PatchOutputsPass {
  PatchPass<T> to;
  const float* bias;  // [lane], or null
  bool relu;
};

template <class T>
struct PatchScatterPass {
  PatchPass<T> to;
  float* sums;  // scratch memory, [row][column][lane of a block]
};

// Of one row of a matrix of windows: taps[tap][lane of a block] and points[point][lane].
struct PatchWindowsPass {
  float* taps;
  float* points;
  std::int64_t point_stride;
};

template <class T>
struct PatchKernels {
  void (*inputs)(const PatchPass<const T>&);            // to points
  void (*gradients)(const PatchPass<const T>&);         // of outputs, to points
  void (*outputs)(const PatchOutputsPass<T>&);          // from points; + bias, then max(0, y)
  void (*input_gradients)(const PatchScatterPass<T>&);  // from points: the sum of what all patches leave
  void (*windows)(const PatchWindowsPass&);             // to points
  void (*window_gradients)(const PatchWindowsPass&);    // from points
  void (*sum_channels)(const LaneImage<const T>&, float* sums);
};

template <class T>
const PatchKernels<T>& patch_kernels_avx512();

}  // namespace tutti::cpu
