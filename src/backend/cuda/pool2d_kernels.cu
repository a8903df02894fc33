#include "backend/cuda/pool2d_kernels.hpp"
#include "floats.cuh"
#include "runs.cuh"

#include <cmath>

namespace tutti::cuda {
namespace {

struct Range {
  int begin;
  int end;
};

// Of a window, the rows or columns that are in the image.
__device__ inline Range inside(int first, int kernel, int extent) {
  return {first < 0 ? 0 : first, first + kernel < extent ? first + kernel : extent};
}

// The windows that cover a row or column of the image.
__device__ inline Range covering(int at, const PoolExtents& extents, int windows) {
  const int padded = at + extents.padding;
  const int past = padded - extents.kernel + 1;
  const int last = padded / extents.stride + 1;
  return {past <= 0 ? 0 : (past + extents.stride - 1) / extents.stride, last < windows ? last : windows};
}

struct Window {
  int top;
  int left;
  Range rows;
  Range columns;
};

__device__ inline Window window_of(const PoolExtents& extents, int row, int column) {
  const int top = row * extents.stride - extents.padding;
  const int left = column * extents.stride - extents.padding;
  return {top, left, inside(top, extents.kernel, extents.height), inside(left, extents.kernel, extents.width)};
}

// A row of the output and a pack in it: its window, and where the sample's pixels begin.
struct OutputPlace {
  int pack;
  std::int64_t first_row;  // of the sample, of all input rows
  Window window;
};

__device__ inline OutputPlace output_place(const PoolExtents& extents, int run, int at) {
  const std::int64_t sample = run / extents.output_height;
  return {at % extents.packs, sample * extents.height,
          window_of(extents, run % extents.output_height, at / extents.packs)};
}

template <class Index, int kSize>
struct alignas(sizeof(Index) * kSize < 16 ? sizeof(Index) * kSize : 16) Places {
  Index values[kSize];
};

template <class T, class Index>
__global__ void max_pool(Pool work, Runs runs) {
  constexpr int kSize = Floats<T>::kSize;
  const PoolExtents& extents = work.extents;
  for_each_pack(runs, [&](int run, int at, std::int64_t i) {
    const OutputPlace place = output_place(extents, run, at);
    const Window& window = place.window;
    Floats<T> best;
    Places<Index, kSize> places;
    const int first = (window.rows.begin - window.top) * extents.kernel + window.columns.begin - window.left;
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      best.values[k] = -INFINITY;
      places.values[k] = static_cast<Index>(first);
    }
    for (int row = window.rows.begin; row < window.rows.end; ++row) {
      for (int column = window.columns.begin; column < window.columns.end; ++column) {
        const auto x =
            load<T>(work.input, ((place.first_row + row) * extents.width + column) * extents.packs + place.pack);
        const auto here = static_cast<Index>((row - window.top) * extents.kernel + column - window.left);
#pragma unroll
        for (int k = 0; k < kSize; ++k) {
          const bool greater = x.values[k] > best.values[k] || x.values[k] != x.values[k];
          best.values[k] = greater ? x.values[k] : best.values[k];
          places.values[k] = greater ? here : places.values[k];
        }
      }
    }
    store(work.output, i, best);
    if (work.places != nullptr) static_cast<Places<Index, kSize>*>(work.places)[i] = places;
  });
}

template <class T>
__global__ void average_pool(Pool work, Runs runs) {
  constexpr int kSize = Floats<T>::kSize;
  const PoolExtents& extents = work.extents;
  const auto area = static_cast<float>(extents.kernel * extents.kernel);
  for_each_pack(runs, [&](int run, int at, std::int64_t i) {
    const OutputPlace place = output_place(extents, run, at);
    const Window& window = place.window;
    Floats<T> sum{};
    for (int row = window.rows.begin; row < window.rows.end; ++row) {
      for (int column = window.columns.begin; column < window.columns.end; ++column) {
        add(sum, load<T>(work.input, ((place.first_row + row) * extents.width + column) * extents.packs + place.pack));
      }
    }
#pragma unroll
    for (int k = 0; k < kSize; ++k) sum.values[k] /= area;
    store(work.output, i, sum);
  });
}

// Calls visit(pack of the output, place of the pixel in the window) for every window over a pack of the input.
template <class Visit>
__device__ inline void for_each_window(const PoolExtents& extents, int run, int at, Visit visit) {
  const int sample = run / extents.height;
  const int row = run % extents.height;
  const int pack = at % extents.packs;
  const int column = at / extents.packs;
  const Range rows = covering(row, extents, extents.output_height);
  const Range columns = covering(column, extents, extents.output_width);
  for (int y = rows.begin; y < rows.end; ++y) {
    const std::int64_t output_row = static_cast<std::int64_t>(sample) * extents.output_height + y;
    const int row_of_window = row + extents.padding - y * extents.stride;
    for (int x = columns.begin; x < columns.end; ++x) {
      const int column_of_window = column + extents.padding - x * extents.stride;
      visit((output_row * extents.output_width + x) * extents.packs + pack,
            row_of_window * extents.kernel + column_of_window);
    }
  }
}

template <class T, class Index>
__global__ void max_pool_gradient(PoolGradient work, Runs runs) {
  constexpr int kSize = Floats<T>::kSize;
  for_each_pack(runs, [&](int run, int at, std::int64_t i) {
    Floats<T> sum{};
    for_each_window(work.extents, run, at, [&](std::int64_t output, int here) {
      const auto places = static_cast<const Places<Index, kSize>*>(work.places)[output];
      const auto gradient = load<T>(work.gradients, output);
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        sum.values[k] += places.values[k] == static_cast<Index>(here) ? gradient.values[k] : 0.0f;
      }
    });
    store(work.input_gradient, i, sum);
  });
}

template <class T>
__global__ void average_pool_gradient(PoolGradient work, Runs runs) {
  const auto area = static_cast<float>(work.extents.kernel * work.extents.kernel);
  for_each_pack(runs, [&](int run, int at, std::int64_t i) {
    Floats<T> sum{};
    for_each_window(work.extents, run, at,
                    [&](std::int64_t output, int) { add(sum, load<T>(work.gradients, output)); });
#pragma unroll
    for (int k = 0; k < Floats<T>::kSize; ++k) sum.values[k] /= area;
    store(work.input_gradient, i, sum);
  });
}

Runs rows_of_input(const PoolExtents& extents) {
  return {extents.samples * extents.height, extents.width * extents.packs};
}
Runs rows_of_output(const PoolExtents& extents) {
  return {extents.samples * extents.output_height, extents.output_width * extents.packs};
}

template <class T>
void run_max_pool(cudaStream_t stream, const Pool& work) {
  const Runs runs = rows_of_output(work.extents);
  const auto kernel = work.extents.is_narrow() ? max_pool<T, std::uint8_t> : max_pool<T, std::uint32_t>;
  launch(kernel, runs.grid(), stream, work, runs);
}

template <class T>
void run_max_pool_gradient(cudaStream_t stream, const PoolGradient& work) {
  const Runs runs = rows_of_input(work.extents);
  const auto kernel =
      work.extents.is_narrow() ? max_pool_gradient<T, std::uint8_t> : max_pool_gradient<T, std::uint32_t>;
  launch(kernel, runs.grid(), stream, work, runs);
}

}  // namespace

void launch_max_pool(cudaStream_t stream, const Pool& work) {
  work.type == ElementType::bf16 ? run_max_pool<Bf16>(stream, work) : run_max_pool<float>(stream, work);
}

void launch_average_pool(cudaStream_t stream, const Pool& work) {
  const Runs runs = rows_of_output(work.extents);
  launch(work.type == ElementType::bf16 ? average_pool<Bf16> : average_pool<float>, runs.grid(), stream, work, runs);
}

void launch_max_pool_gradient(cudaStream_t stream, const PoolGradient& work) {
  work.type == ElementType::bf16 ? run_max_pool_gradient<Bf16>(stream, work)
                                 : run_max_pool_gradient<float>(stream, work);
}

void launch_average_pool_gradient(cudaStream_t stream, const PoolGradient& work) {
  const Runs runs = rows_of_input(work.extents);
  launch(work.type == ElementType::bf16 ? average_pool_gradient<Bf16> : average_pool_gradient<float>, runs.grid(),
         stream, work, runs);
}

}  // namespace tutti::cuda
