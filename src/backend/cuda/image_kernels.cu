#include "backend/cuda/image_kernels.hpp"
#include "kernel.cuh"

namespace tutti::cuda {
namespace {

constexpr int kThreads = 256;

// What one image asks of one axis.
struct Taps {
  const std::int32_t* first;  // by output
  const float* weights;       // by tap, then output
  int count;
  int outputs;

  __device__ Taps(const AxisWork& work, std::int64_t image)
      : first(work.first + image * work.outputs),
        weights(work.weights + image * work.most_taps * work.outputs),
        count(work.taps[image]),
        outputs(work.outputs) {}

  // In the order of the host's writer, groups of four and then singles, and never fused, for the host's bits.
  template <class Input>
  __device__ float sum(int output, const Input* inputs, int stride) const {
    const Input* input = inputs + static_cast<std::int64_t>(first[output]) * stride;
    const float* weight = weights + output;
    const auto product = [&](int tap) {
      return __fmul_rn(weight[static_cast<std::int64_t>(tap) * outputs],
                       static_cast<float>(input[static_cast<std::int64_t>(tap) * stride]));
    };
    float sum = 0;
    int tap = 0;
    for (; tap + 4 <= count; tap += 4) {
      const float pair = __fadd_rn(product(tap), product(tap + 1));
      sum = __fadd_rn(sum, __fadd_rn(__fadd_rn(pair, product(tap + 2)), product(tap + 3)));
    }
    for (; tap < count; ++tap) sum = __fadd_rn(sum, product(tap));
    return sum;
  }
};

// Some output rows of one channel of one image: their rows are resampled first, and the columns of these then.
__global__ void gather(const GatherWork work, const int rows_at_once, const int tiles) {
  __shared__ float resampled[kWidestImage];
  const std::int64_t image = blockIdx.x / static_cast<unsigned>(tiles);
  const int tile = static_cast<int>(blockIdx.x - static_cast<unsigned>(image) * static_cast<unsigned>(tiles));
  const int channel = static_cast<int>(blockIdx.y);
  const Taps rows(work.rows, image);
  const Taps columns(work.columns, image);
  const int top = tile * rows_at_once;
  const int count = rows.outputs - top < rows_at_once ? rows.outputs - top : rows_at_once;
  const std::int64_t sample = work.samples[image];
  const std::uint8_t* const plane =
      work.pixels + (sample * work.channels + channel) * (static_cast<std::int64_t>(work.height) * work.width);
  for (int i = static_cast<int>(threadIdx.x); i < count * work.width; i += kThreads) {
    const int y = i / work.width;
    resampled[i] = rows.sum(top + y, plane + (i - y * work.width), work.width);
  }
  __syncthreads();
  const float mean = work.means[channel];
  const float deviation = work.deviations[channel];
  float* const values = work.images + ((image * work.channels + channel) * rows.outputs + top) * columns.outputs;
  for (int i = static_cast<int>(threadIdx.x); i < count * columns.outputs; i += kThreads) {
    const int y = i / columns.outputs;
    const float pixel = columns.sum(i - y * columns.outputs, resampled + y * work.width, 1);
    values[i] = __fdiv_rn(__fsub_rn(__fdiv_rn(pixel, 255.0f), mean), deviation);
  }
  if (tile == 0 && channel == 0 && threadIdx.x == 0) work.image_labels[image] = work.labels[sample];
}

}  // namespace

void launch_gather(cudaStream_t stream, const GatherWork& work, std::int64_t images) {
  const int fitting = kWidestImage / work.width;
  const int rows_at_once = fitting < work.rows.outputs ? fitting : work.rows.outputs;
  const int tiles = (work.rows.outputs + rows_at_once - 1) / rows_at_once;
  launch(gather, Grid{.blocks = images * tiles, .blocks_y = work.channels, .threads = kThreads}, stream, work,
         rows_at_once, tiles);
}

}  // namespace tutti::cuda
