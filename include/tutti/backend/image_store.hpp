#pragma once
// Images of one size in a processor's memory. Batches are resampled and normalized there, bit-identical to
// data/pixel_writer.hpp on the host.

#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"

#include <cstdint>
#include <span>

namespace tutti {

// A data set in host memory, which upload_dataset() copies.
struct ImageSet {
  std::span<const std::uint8_t> pixels;  // sample by sample in C, H, W order
  std::span<const std::int32_t> labels;
  Shape image;  // C, H, W
};

// How one axis of every image of a batch is resampled: output i of image n is the sum over t below taps[n] of
// weights[n][t][i] * input[first[n][i] + t].
struct AxisTables {
  Tensor taps;     // i32 [images]
  Tensor first;    // i32 [images, outputs]
  Tensor weights;  // f32 [images, most taps, outputs]
};

// All tensors are in this processor's memory.
struct ImageGather {
  Tensor samples;  // i32 [images]: indices of the samples
  AxisTables rows;
  AxisTables columns;
  Tensor means;       // f32 [C]: mean of pixel / 255
  Tensor deviations;  // f32 [C]
  Tensor images;      // f32 N, C, H, W: output
  Labels labels;      // output
};

class ImageStore {
 public:
  virtual ~ImageStore() = default;
  // Asynchronous.
  virtual void gather(Stream& stream, const ImageGather& request) = 0;
};

}  // namespace tutti
