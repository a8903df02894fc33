#pragma once
// The kernel of image_store.cpp. Pointers are to a GPU's memory.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tutti::cuda {

// Wider images do not fit a kernel's shared memory.
inline constexpr int kWidestImage = 4096;

// AxisTables of one batch.
struct AxisWork {
  const std::int32_t* taps;
  const std::int32_t* first;
  const float* weights;
  int most_taps;
  int outputs;
};

struct GatherWork {
  const std::uint8_t* pixels;
  const std::int32_t* labels;
  int channels;
  int height;
  int width;
  const std::int32_t* samples;
  AxisWork rows;
  AxisWork columns;
  const float* means;
  const float* deviations;
  float* images;
  std::int32_t* image_labels;
};

// Asynchronous.
void launch_gather(cudaStream_t stream, const GatherWork& work, std::int64_t images);

}  // namespace tutti::cuda
