#pragma once
// The loops of Winograd convolutions (tiled_convolution.hpp) and of convolutions as matrix products
// (matrix_convolution.cpp), compiled for each instruction set, which give the same bits. The outputs of a 3x3 window
// with stride 1 are divided into tiles. A tile's input and the window are transformed to the Winograd domain, whose
// elements are called points. There a convolution is one matrix product per point, channels by channels, with a quarter
// of the multiplications, or a third with smaller tiles. The matrices of successive points are `point_stride` apart.
// Where the processor multiplies pairs of bf16, two numbers make up a word.

#include "backend/cpu/element.hpp"

#include <cstdint>

namespace tutti::cpu {

inline constexpr int kWindow = 3;
inline constexpr int kTaps = kWindow * kWindow;

// An activation. Strides count elements; a block has 16 adjacent channels, of any register's width.
template <class T>
struct TileImage {
  T* values;
  std::int64_t image, block, row, column;
};

// From a pixel's first channel to another one.
template <class Image>
[[gnu::always_inline]] inline std::int64_t channel_offset(const Image& image, std::int64_t channel) {
  return channel / kBlockChannels * image.block + channel % kBlockChannels;
}

struct TileGrid {
  std::int64_t rows, columns;  // of the image that is read or written
  std::int64_t tiles_down, tiles_across;
  std::int64_t padding;  // by which the first tile extends beyond the image
};

struct TileRange {
  std::int64_t first, count;
};

[[gnu::always_inline]] inline bool is_within(std::int64_t place, std::int64_t extent) {
  return static_cast<std::uint64_t>(place) < static_cast<std::uint64_t>(extent);
}

// The points of tiles of an input, or of an output's gradient.
template <class T>
struct PointsPass {
  TileImage<const T> from;
  TileGrid grid;
  TileRange tiles;
  std::int64_t blocks;
  float* to;
  std::int64_t point_stride;
};

// The points of windows, to[point][step][lane], where a step is an input and two blocks of lanes are outputs. For the
// gradient of the input they are transposed: a step is an output, lanes are inputs, and windows are rotated by 180
// degrees.
struct WindowsPass {
  const float* windows;        // the first of [output][input][tap]
  std::int64_t output_stride;  // from one output's windows to the next one's
  std::int64_t steps;          // a multiple of a block
  bool transposed;
  float* to;
  std::int64_t point_stride;
};

// sums[row][lane] = or += sum over steps of a(row, step) * b[step][lane], for two blocks of lanes.
struct ProductPass {
  const float* a;  // rows apart: a[row * a_stride + step]; rows adjacent: a[step * a_stride + row]
  std::int64_t a_stride;
  const float* b;
  std::int64_t b_stride;
  std::int64_t steps;
  float* sums;
  bool add;
};

// Outputs from the sums at the points, [point][tile][lane], then + bias, then max(0, y).
template <class T>
struct OutputsPass {
  const float* from;
  std::int64_t point_stride;
  TileImage<T> to;  // from the first of two blocks of channels on
  TileGrid grid;
  TileRange tiles;
  const float* bias;  // of these channels, or null
  bool relu;
};

// The gradients of windows, from the sums at the points, [point][output][input in two blocks of lanes].
struct WindowGradientsPass {
  const float* from;
  std::int64_t point_stride;
  std::int64_t outputs;  // a multiple of a block
  float* windows;
  std::int64_t output_stride;
};

// A convolution's weights as the steps of a product: to[place of a step][lane], from canonical weights, in which the
// steps of a lane are adjacent. Lanes without weights become 0.
struct TransposePass {
  const float* weights;
  std::int64_t lane_stride;
  std::int64_t lanes;  // with weights, of a register
  std::int64_t steps;
  const std::int64_t* places;  // in floats
  float* to;
};

// values[step][lane] of two registers to words, in place. The number of steps is rounded up to a multiple of a word's.
struct RoundPass {
  float* values;
  std::int64_t steps;
};

// Outputs from sums[row][lane] of two registers, then + bias, then max(0, y).
template <class T>
struct DeliverPass {
  const float* sums;
  std::int64_t rows;
  const std::int64_t* places;  // of the rows' pixels, in elements of `to`
  TileImage<T> to;
  std::int64_t channel, channels;  // the first one, and how many there are from it on
  const float* bias;               // of these channels, or null
  bool relu;
};

template <class T>
struct TileKernels {
  int lanes;                                    // of a register
  int tile_down, tile_across;                   // outputs of a tile
  int points;                                   // of a tile
  int pack;                                     // numbers in a word of a matrix: steps of a product count words
  bool rounds;                                  // points to bf16
  bool flushes;                                 // products need a processor that flushes denormal numbers to zero
  int max_rows;                                 // of a product
  void (*inputs)(const PointsPass<T>&);         // to[point][tile][channel]
  void (*paired_inputs)(const PointsPass<T>&);  // the same, where words pack tiles instead of channels
  void (*paired_gradients)(const PointsPass<T>&);
  void (*windows)(const WindowsPass&);
  void (*const* rows_apart)(const ProductPass&);  // [rows - 1]
  void (*const* rows_adjacent)(const ProductPass&);
  void (*outputs)(const OutputsPass<T>&);
  void (*collect)(const WindowGradientsPass&);
  void (*transpose)(const TransposePass&);
  void (*round)(const RoundPass&);
  void (*deliver)(const DeliverPass<T>&);
  void (*deliver_f32)(const DeliverPass<float>&);
};

// The kernels for this processor.
// Tiles of four outputs in each direction, with products in f32, which are precise enough for both precisions.
template <class T>
const TileKernels<T>& wide_tiles();
// Tiles of 4x2 outputs, with points rounded to bf16: some processors multiply pairs of bf16 at twice the speed. The
// error is 1.5 times that of 2x2 tiles; 4x4 tiles would nearly double it.
const TileKernels<Bf16>& narrow_tiles();

}  // namespace tutti::cpu
