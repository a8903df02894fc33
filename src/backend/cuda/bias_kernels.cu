#include "backend/cuda/bias_kernels.hpp"
#include "element.cuh"

#include <algorithm>

namespace tutti::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr std::int64_t kMostBlocks = 1024;

// Each thread keeps to one pack of channels and walks over pixels, its neighbours beside it on the same pixel.
struct Walk {
  std::int64_t rows;   // pixels
  std::int64_t packs;  // of one pixel
  int columns;         // packs that a block covers; a power of two

  int rows_at_once() const { return kThreads / columns; }
};

Walk walk_of(const ImageLayout& layout, ElementType type) {
  const std::int64_t packs = layout.padded_channels * static_cast<std::int64_t>(bytes_of(type)) / 16;
  int columns = 1;
  while (columns < std::min<std::int64_t>(packs, kWarp)) columns *= 2;
  return {layout.rows(), packs, columns};
}

Grid grid_of(const Walk& walk) {
  const std::int64_t strips = (walk.packs + walk.columns - 1) / walk.columns;
  const std::int64_t steps = (walk.rows + walk.rows_at_once() - 1) / walk.rows_at_once();
  const std::int64_t most = std::max<std::int64_t>(kMostBlocks / strips, 1);
  return {.blocks = std::min(steps, most), .blocks_y = strips, .threads = kThreads};
}

struct Place {
  int row;  // within the rows that the block handles at once
  std::int64_t column;
  std::int64_t first;
  std::int64_t stride;
};

__device__ inline Place place_of(const Walk& walk) {
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / walk.columns;
  const int at_once = kThreads / walk.columns;
  return {row, static_cast<std::int64_t>(blockIdx.y) * walk.columns + thread % walk.columns,
          static_cast<std::int64_t>(blockIdx.x) * at_once + row, static_cast<std::int64_t>(gridDim.x) * at_once};
}

template <class T>
__global__ void add_bias(Walk walk, Pack<T>* values, const float* bias, std::int64_t channels, bool relu) {
  constexpr int kPack = Pack<T>::kSize;
  const Place place = place_of(walk);
  if (place.column >= walk.packs) return;
  float added[kPack];
  for (int k = 0; k < kPack; ++k) {
    const std::int64_t channel = place.column * kPack + k;
    added[k] = bias != nullptr && channel < channels ? bias[channel] : 0.0f;
  }
  for (std::int64_t row = place.first; row < walk.rows; row += place.stride) {
    Pack<T>& at = values[row * walk.packs + place.column];
    Pack<T> pack = at;
    for (int k = 0; k < kPack; ++k) {
      const float value = to_float(pack.values[k]) + added[k];
      set(pack.values[k], relu && value < 0 ? 0.0f : value);
    }
    at = pack;
  }
}

// The sums of a block's threads over the same channels, in the order of a tree, by the first of them.
template <int kPack>
__device__ inline void write_partials(const Walk& walk, const Place& place, const float (&sums)[kPack],
                                      float* partials) {
  __shared__ float values[kPack * kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  for (int k = 0; k < kPack; ++k) values[k * kThreads + thread] = sums[k];
  for (int half = kThreads / 2; half >= walk.columns; half /= 2) {
    __syncthreads();
    if (thread >= half) continue;
    for (int k = 0; k < kPack; ++k) values[k * kThreads + thread] += values[k * kThreads + thread + half];
  }
  if (thread >= walk.columns || place.column >= walk.packs) return;
  float* const to = partials + (blockIdx.x * walk.packs + place.column) * kPack;
  for (int k = 0; k < kPack; ++k) to[k] = values[k * kThreads + thread];
}

template <class T>
struct GradientWalk {
  Pack<T>* gradient;
  const Pack<T>* added;
  const Pack<T>* output;
  float* partials;
};

template <class T>
__global__ void form_gradient(Walk walk, GradientWalk<T> pass) {
  constexpr int kPack = Pack<T>::kSize;
  const Place place = place_of(walk);
  float sums[kPack] = {};
  const std::int64_t rows = place.column < walk.packs ? walk.rows : 0;
  for (std::int64_t row = place.first; row < rows; row += place.stride) {
    const std::int64_t i = row * walk.packs + place.column;
    Pack<T> pack = pass.gradient[i];
    if (pass.added != nullptr) {
      const Pack<T> added = pass.added[i];
      for (int k = 0; k < kPack; ++k) set(pack.values[k], to_float(pack.values[k]) + to_float(added.values[k]));
    }
    if (pass.output != nullptr) {
      const Pack<T> output = pass.output[i];
      for (int k = 0; k < kPack; ++k) {
        if (to_float(output.values[k]) <= 0) set(pack.values[k], 0.0f);
      }
    }
    if (pass.added != nullptr || pass.output != nullptr) pass.gradient[i] = pack;
    for (int k = 0; k < kPack; ++k) sums[k] += to_float(pack.values[k]);
  }
  if (pass.partials != nullptr) write_partials(walk, place, sums, pass.partials);
}

template <class T>
void run(cudaStream_t stream, const BiasRelu& request) {
  const Walk walk = walk_of(request.layout, request.type);
  launch(add_bias<T>, grid_of(walk), stream, walk, static_cast<Pack<T>*>(request.values), request.bias,
         request.layout.channels, request.relu);
}

template <class T>
void run(cudaStream_t stream, const OutputGradient& request) {
  const Walk walk = walk_of(request.layout, request.type);
  const GradientWalk<T> pass{static_cast<Pack<T>*>(request.gradient), static_cast<const Pack<T>*>(request.added),
                             static_cast<const Pack<T>*>(request.output), request.partials};
  launch(form_gradient<T>, grid_of(walk), stream, walk, pass);
}

}  // namespace

void launch_bias_relu(cudaStream_t stream, const BiasRelu& request) {
  request.type == ElementType::bf16 ? run<Bf16>(stream, request) : run<float>(stream, request);
}

std::int64_t partial_sums(const ImageLayout& layout, ElementType type) { return grid_of(walk_of(layout, type)).blocks; }

void launch_output_gradient(cudaStream_t stream, const OutputGradient& request) {
  request.type == ElementType::bf16 ? run<Bf16>(stream, request) : run<float>(stream, request);
}

}  // namespace tutti::cuda
