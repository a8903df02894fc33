#include "backend/cuda/convert_kernels.hpp"
#include "element.cuh"

namespace tutti::cuda {
namespace {

constexpr int kMostThreads = 256;
constexpr std::int64_t kMostBlocksY = 65535;

// A thread's pack within a sample. Neighbouring threads take neighbouring packs of a pixel and then neighbouring
// pixels; so both sides are read and written as they lie where it matters: images of few channels, and vectors.
struct PackPlace {
  unsigned index;
  unsigned pixel;
  unsigned channel;  // the first
  unsigned pixels;
  unsigned packs;  // of a sample

  __device__ PackPlace(const ImageLayout& layout, unsigned size)
      : index(blockIdx.x * blockDim.x + threadIdx.x), pixels(static_cast<unsigned>(layout.height * layout.width)) {
    const unsigned packs_of_pixel = static_cast<unsigned>(layout.padded_channels) / size;
    pixel = index / packs_of_pixel;
    channel = (index - pixel * packs_of_pixel) * size;
    packs = pixels * packs_of_pixel;
  }
};

template <class T>
__global__ void gather_packs(const ImageLayout layout, const float* plain, Pack<T>* to) {
  const PackPlace place(layout, Pack<T>::kSize);
  if (place.index >= place.packs) return;
  for (std::int64_t n = blockIdx.y; n < layout.samples; n += gridDim.y) {
    const float* const from = plain + (n * layout.channels + place.channel) * place.pixels + place.pixel;
    Pack<T> pack;
    for (int i = 0; i < Pack<T>::kSize; ++i) {
      set(pack.values[i], place.channel + i < layout.channels ? from[std::int64_t{i} * place.pixels] : 0.0f);
    }
    to[n * place.packs + place.index] = pack;
  }
}

template <class T>
__global__ void scatter_packs(const ImageLayout layout, const Pack<T>* from, float* plain) {
  const PackPlace place(layout, Pack<T>::kSize);
  if (place.index >= place.packs) return;
  for (std::int64_t n = blockIdx.y; n < layout.samples; n += gridDim.y) {
    const Pack<T> pack = from[n * place.packs + place.index];
    float* const to = plain + (n * layout.channels + place.channel) * place.pixels + place.pixel;
    for (int i = 0; i < Pack<T>::kSize; ++i) {
      if (place.channel + i < layout.channels) to[std::int64_t{i} * place.pixels] = to_float(pack.values[i]);
    }
  }
}

template <class T>
Grid grid_of(const ImageLayout& layout) {
  const std::int64_t packs = layout.pixels() * (layout.padded_channels / Pack<T>::kSize);
  const std::int64_t threads = packs < kMostThreads ? (packs + 31) / 32 * 32 : kMostThreads;
  return {.blocks = threads == 0 ? 0 : (packs + threads - 1) / threads,
          .blocks_y = layout.samples < kMostBlocksY ? layout.samples : kMostBlocksY,
          .threads = static_cast<int>(threads)};
}

template <class T>
void launch_gather(cudaStream_t stream, const ImageLayout& layout, const float* plain, void* to) {
  launch(gather_packs<T>, grid_of<T>(layout), stream, layout, plain, static_cast<Pack<T>*>(to));
}

template <class T>
void launch_scatter(cudaStream_t stream, const ImageLayout& layout, const void* from, float* plain) {
  launch(scatter_packs<T>, grid_of<T>(layout), stream, layout, static_cast<const Pack<T>*>(from), plain);
}

}  // namespace

void launch_to_plain(cudaStream_t stream, const ImageLayout& layout, ElementType type, const void* from, float* plain) {
  if (type == ElementType::bf16) return launch_scatter<Bf16>(stream, layout, from, plain);
  launch_scatter<float>(stream, layout, from, plain);
}

void launch_from_plain(cudaStream_t stream, const ImageLayout& layout, ElementType type, const float* plain, void* to) {
  if (type == ElementType::bf16) return launch_gather<Bf16>(stream, layout, plain, to);
  launch_gather<float>(stream, layout, plain, to);
}

}  // namespace tutti::cuda
