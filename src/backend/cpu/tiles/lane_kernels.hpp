#pragma once
// Loops for any number of channels, compiled for each instruction set, which give the same bits. Activations are
// processed in registers of 4, 8 or 16 channels, the lanes; the last register may be incomplete. A panel is two
// registers.

#include "backend/cpu/element.hpp"
#include "backend/cpu/tiles/tile_kernels.hpp"

#include <cstdint>

namespace tutti::cpu {

inline constexpr int kMostLanes = 16;

// One image; strides count elements, as in TileImage.
template <class T>
struct LaneImage {
  T* values;
  std::int64_t block, row, column;
  std::int64_t rows, columns;
  std::int64_t channels;
};

// Winograd convolution F(3x3, 5x5). A patch is the input of a tile of 3x3 outputs under a 5x5 window: 7x7 values. As in
// tile_kernels.hpp, patches, windows and outputs are transformed to the Winograd domain, where a convolution is a
// matrix product per point. The backward passes are the same steps transposed, so all passes have the same tiles. The
// matrices of successive points are `point_stride` apart. An activation's channels need not fill its
// registers.
inline constexpr int kPatchTile = 3;
inline constexpr int kPatchWindow = 5;
inline constexpr int kPatchSide = kPatchTile + kPatchWindow - 1;
inline constexpr int kPatchPoints = kPatchSide * kPatchSide;
inline constexpr int kPatchTaps = kPatchWindow * kPatchWindow;

struct PatchGrid {
  std::int64_t down, across;  // tiles of an image
  std::int64_t padding;       // by which the first patch extends beyond the input
};

// Between an image and the points of its tiles, points[point][tile][lane]: `blocks` registers, `first_block` first.
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
  float* sums;  // scratch memory, [row][column][lane of a register]
};

// One row of a matrix of windows: taps[tap][lane of a register] and points[point][lane].
struct PatchWindowsPass {
  float* taps;
  float* points;
  std::int64_t point_stride;
};

template <class T>
struct PatchKernels {
  int lanes;
  void (*inputs)(const PatchPass<const T>&);            // to points
  void (*gradients)(const PatchPass<const T>&);         // of outputs, to points
  void (*outputs)(const PatchOutputsPass<T>&);          // from points; + bias, then max(0, y)
  void (*input_gradients)(const PatchScatterPass<T>&);  // from points: the sum over all patches
  void (*windows)(const PatchWindowsPass&);             // to points
  void (*window_gradients)(const PatchWindowsPass&);    // from points
};

// Direct convolution for few input channels, such as a network's first layer. Sums of many outputs stay in registers.
// Only the input is copied: to f32, channels-last, padded.

// The memory layout of the values under a window: `rows` runs of `run` values.
struct FewChannelWindow {
  std::int64_t rows, run;
  std::int64_t row;                    // from one row of the input to the next one
  std::int64_t next_row, next_column;  // from one output's window to the next one's
};

template <class T>
struct FewChannelForwardPass {
  FewChannelWindow window;
  const float* input;
  const float* weights;  // [panel][value][lane]
  const float* bias;     // [lane of all panels]
  LaneImage<T> output;
  bool relu;
};

// The sums over one image's outputs of gradient x value, and of the gradient, where the output was positive.
template <class T>
struct FewChannelWeightsPass {
  FewChannelWindow window;
  const float* input;
  LaneImage<const T> gradient;
  const T* output;  // of the same layout; null: treated as positive
  float* sums;      // [panel][values + 1][lane]; the last entry is the bias gradient
};

template <class T>
struct FewChannelKernels {
  int lanes;
  void (*forward)(const FewChannelForwardPass<T>&);
  void (*backward_weights)(const FewChannelWeightsPass<T>&);
};

// Direct convolution in groups of channels, in blocks of 16 lanes, which are outputs or, for the gradient of the input,
// inputs. A lane has a window over each plane of its group: a depthwise convolution has one plane. The rows under the
// windows are kept in scratch memory as f32, with zeros at both sides, so that sums need not know of borders. A lane of
// theirs has the values of the plane that it reads. Rows beyond the image are left out of the sums.

// The outputs `i`, `i + count`, ... of phase i read `taps` values each, `apart` from one another. The first output's
// begin at `origin`, and the next one's `step` further. There is one phase if outputs are strided, and one for each
// remainder of the stride if what they read is. Rows and columns have the same phases.
struct GroupedPhase {
  std::int64_t taps;
  std::int64_t begin;  // among the window's taps, sorted by phases
  std::int64_t origin;
};
struct GroupedAxis {
  const GroupedPhase* phases = nullptr;
  std::int64_t count = 0;
  std::int64_t step = 1, apart = 1;
  std::int64_t window = 0;           // taps of all phases
  std::int64_t left = 0, width = 0;  // the columns that are kept: from the image's column `left` on, 0 or less
  std::int64_t kept = 1;             // rows
};

// The taps of an output's window that are within the image.
struct GroupedRows {
  std::int64_t first;  // the row of tap 0
  std::int64_t begin, end;
};
[[gnu::always_inline]] inline GroupedRows rows_under(const GroupedAxis& axis, std::int64_t output, std::int64_t rows) {
  const GroupedPhase& phase = axis.phases[output % axis.count];
  const std::int64_t first = output / axis.count * axis.step + phase.origin;
  const std::int64_t begin = first < 0 ? (axis.apart - 1 - first) / axis.apart : 0;
  const std::int64_t within = first < rows ? (rows - first + axis.apart - 1) / axis.apart : 0;
  const std::int64_t end = within < phase.taps ? within : phase.taps;
  return {first, begin < end ? begin : end, end};
}

template <class T>
struct GroupedPlanes {
  LaneImage<const T> image;
  std::int64_t channel;        // the first lane
  const std::int64_t* places;  // [plane][lane], from a pixel's first channel; null: lanes read their own channel
  std::int64_t planes;
  std::int64_t alike;  // adjacent lanes that read the same planes: 16, 8, 4 or 1
  float* rows;  // scratch memory, [plane][kept row][column][lane]; [kept row][column][plane] if all lanes are alike
};
inline constexpr std::int64_t kAllAlike = kBlockChannels;

template <class T>
struct GroupedPass {
  GroupedAxis axis;
  GroupedPlanes<T> from;
  const float* weights;  // [plane][row][column][lane], rows and columns sorted by phases
  const float* bias;     // [lane]
  LaneImage<T> to;
  bool relu;
};

// The sums over outputs of some images of gradient x value, and of the gradient.
template <class T>
struct GroupedWeightsPass {
  GroupedAxis axis;  // of one phase
  GroupedPlanes<T> from;
  LaneImage<const T> gradient;
  std::int64_t images;
  std::int64_t next_input, next_gradient;  // from one image to the next one
  float* sums;                             // [plane][row][column][lane]
  float* bias;                             // [lane]; or null
};

template <class T>
struct GroupedKernels {
  void (*convolve)(const GroupedPass<T>&);
  void (*backward_weights)(const GroupedWeightsPass<T>&);
};

// All of them.
template <class T>
struct LaneKernels {
  PatchKernels<T> patches;
  FewChannelKernels<T> few_channels;
  GroupedKernels<T> grouped;
  // The sums of an image's channels, each row's first.
  void (*sum_channels)(const LaneImage<const T>&, float* sums);
};

template <class T>
const LaneKernels<T>& lane_kernels();  // for this processor

}  // namespace tutti::cpu
