#pragma once
// Shared by all convolutions: division of the work among workers, and matrices in the workspace.

#include "tutti/base/denormals.hpp"

#include "backend/cpu/format.hpp"
#include "backend/cpu/stream.hpp"
#include "backend/cpu/tiles/lane_kernels.hpp"
#include "backend/cpu/tiles/tile_kernels.hpp"

#include <algorithm>
#include <vector>

namespace tutti::cpu {

// The strides and extents of a convolution's input or output.
struct TileSide {
  std::int64_t image, block, row, column;  // strides
  std::int64_t rows, columns, channels;
};

inline TileSide side_of(const Layout& layout) {
  const ChannelLayout channels(layout);
  const std::int64_t columns = layout.shape().ndim() == 4 ? layout.shape()[3] : 1;
  const bool adjacent = channels.adjacent_channels();
  const std::int64_t period = adjacent ? channels.blocks() * channels.period() : channels.period();
  return {.image = channels.blocks() * channels.pixels() * channels.period(),
          .block = adjacent ? kBlockChannels : channels.pixels() * period,
          .row = columns * period,
          .column = period,
          .rows = channels.pixels() / columns,
          .columns = columns,
          .channels = channels.channels()};
}

// The channels of the first of some groups.
inline TileSide side_of(const Layout& layout, std::int64_t groups) {
  TileSide side = side_of(layout);
  side.channels /= groups;
  return side;
}

template <class T>
TileImage<T> image_of(const TileSide& side, T* values) {
  return {values, side.image, side.block, side.row, side.column};
}

inline std::int64_t ceil_div(std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; }

// Calls work(worker, item) for each item. Calls with the same worker number do not overlap.
template <class Work>
void parallel_for(CpuStream& stream, std::int64_t items, const Work& work) {
  const int workers = static_cast<int>(std::min<std::int64_t>(stream.workers(), items));
  stream.run(workers, [&](int worker) {
    for (std::int64_t item = worker; item < items; item += workers) work(worker, item);
  });
}

struct ImageSums {
  std::int64_t images;
  std::int64_t count;  // of sums
  std::int64_t own;    // floats of scratch memory for each worker
};
// Calls work(image, its sums, the worker's scratch) for each image and adds the sums over images, in f64 and in the
// order of the images.
template <class Work>
std::vector<float> sum_images(CpuStream& stream, const ImageSums& what, const Work& work) {
  const std::int64_t of_all = what.images * what.count;
  float* const of_images = stream.scratch(of_all + stream.workers() * what.own);
  parallel_for(stream, what.images, [&](int worker, std::int64_t image) {
    work(image, of_images + image * what.count, of_images + of_all + worker * what.own);
  });
  std::vector<double> sums(static_cast<std::size_t>(what.count));
  for (const float* image = of_images; image != of_images + of_all; image += what.count) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(image[i]);
  }
  return {sums.begin(), sums.end()};
}

// The gradient of a bias: to[channel] = the sum of the output's gradient over all images.
template <class T>
void sum_bias(CpuStream& stream, const TileSide& side, std::int64_t images, const T* gradient, float* to) {
  const std::int64_t lanes = ceil_div(side.channels, kMostLanes) * kMostLanes;
  const auto sums = sum_images(stream, {images, lanes, 0}, [&](std::int64_t index, float* of_image, float*) {
    lane_kernels<T>().sum_channels(
        {gradient + index * side.image, side.block, side.row, side.column, side.rows, side.columns, side.channels},
        of_image);
  });
  std::copy_n(sums.begin(), side.channels, to);
}

// One matrix per point, in scratch memory. The stride between points is not a power of two, which would cause cache
// conflicts.
struct PointMatrices {
  std::int64_t points, rows, columns;  // columns in words
  std::int64_t stride() const { return rows * columns + 16; }
  std::int64_t floats() const { return points * stride(); }
};

// Divides the rows evenly into as few groups as the kernel allows. Some kernels need denormal numbers flushed to zero,
// and those that they read treated as zeros, as the products of bf16 of some processors do.
template <class T>
void multiply(const TileKernels<T>& kernels, bool apart, std::int64_t rows, ProductPass product) {
  const std::uint64_t mode = kernels.flushes ? denormal_mode() : 0;
  if (kernels.flushes) set_denormal_mode(flushing_modes().back());
  const auto* const multiply_rows = apart ? kernels.rows_apart : kernels.rows_adjacent;
  const std::int64_t groups = ceil_div(rows, kernels.max_rows);
  for (std::int64_t group = 0, first = 0; group < groups; ++group) {
    const std::int64_t count = rows * (group + 1) / groups - first;
    multiply_rows[count - 1](product);
    first += count;
    product.a += apart ? count * product.a_stride : count;
    product.sums += count * 2 * kernels.lanes;
  }
  if (kernels.flushes) set_denormal_mode(mode);
}

// An activation over all images, for kernels that divide its channels into panels.
struct LaneSide : TileSide {
  LaneSide(const Layout& layout, std::int64_t of_panel) : TileSide(side_of(layout)), panel(of_panel) {}

  std::int64_t panels() const { return ceil_div(channels, panel); }
  std::int64_t blocks() const { return panels() * 2; }
  std::int64_t lanes() const { return panels() * panel; }

  std::int64_t panel;
};

template <class T>
LaneImage<T> image_of(const LaneSide& side, T* values, std::int64_t index) {
  return {values + index * side.image, side.block, side.row, side.column, side.rows, side.columns, side.channels};
}

}  // namespace tutti::cpu
