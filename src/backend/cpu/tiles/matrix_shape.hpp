#pragma once
// Convolutions as matrix products: their geometry, and copies of what they multiply.

#include "backend/cpu/tiles/tile_work.hpp"

#include <cstring>
#include <type_traits>
#include <vector>

namespace tutti::cpu {

struct MatrixWindow {
  std::int64_t rows, columns, stride, padding, dilation;
  std::int64_t places() const { return rows * columns; }
};

struct MatrixShape {
  TileSide input, output;
  std::int64_t images;
  MatrixWindow window;
  bool f32_output;                                                          // of the forward pass
  std::int64_t values() const { return input.channels * window.places(); }  // under a window
};

// A place of the window, and the distance of what is read there from the first one read.
struct Place {
  std::int64_t index;
  std::int64_t row, column;
};

// One in `apart` pixels of the result along each axis, from (row, column) on: those that read the same places.
struct Phase {
  std::int64_t row, column, apart;
  std::int64_t rows, columns;
  std::int64_t scale;  // from pixel to pixel, in what is read
  std::vector<Place> places;
  std::int64_t first_step = 0;
};

// The phase of the forward pass, and those of the input gradient, one for each remainder of the stride.
Phase forward_phase(const MatrixShape& shape);
std::vector<Phase> gradient_phases(const MatrixShape& shape);

template <class To, class From>
void copy_run(const From* from, To* to, std::int64_t count) {
  if constexpr (sizeof(To) == sizeof(From)) {
    if (count == kBlockChannels) {
      std::memcpy(to, from, kBlockChannels * sizeof(To));
    } else {
      std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(To));
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
  }
}

// Calls visit(first channel, count) for runs of channels that are adjacent in memory.
template <class Visit>
void for_each_run(const TileSide& side, std::int64_t first, std::int64_t count, const Visit& visit) {
  if (side.block == kBlockChannels) return visit(first, count);
  for (const std::int64_t end = first + count; first < end;) {
    const std::int64_t run = std::min(kBlockChannels - first % kBlockChannels, end - first);
    visit(first, run);
    first += run;
  }
}

// The numbers of two steps of a product, as words.
inline void pair_steps(const Bf16* first, const Bf16* second, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t word = first[i].bits | static_cast<std::uint32_t>(second[i].bits) << 16;
    std::memcpy(to + i, &word, sizeof word);
  }
}

template <class T>
const TileKernels<T>& product_kernels() {
  if constexpr (std::is_same_v<T, Bf16>) {
    return narrow_tiles();
  } else {
    return wide_tiles<float>();
  }
}

}  // namespace tutti::cpu
