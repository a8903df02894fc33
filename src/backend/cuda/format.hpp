#pragma once
// The layouts of activations in GPU memory. Native: samples, rows, columns, channels (NHWC), in the layers' compute
// type. Zeros pad the channels to a multiple of 16 bytes, and every layer keeps them zero. Plain: f32 in canonical
// order, for the loader's batches and for predictions.

#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"

#include <cstdint>

namespace tutti::cuda {

// The bytes that a thread reads or writes in one access. Channels are padded to whole packs.
inline constexpr std::size_t kPackBytes = 16;

// Passed to kernels by value. A vector is an image of one pixel.
struct ImageLayout {
  std::int64_t samples = 0;
  std::int64_t channels = 0;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t padded_channels = 0;  // from one pixel to the next

  std::int64_t pixels() const { return height * width; }
  std::int64_t rows() const { return samples * height * width; }  // pixels of all samples
  std::int64_t values() const { return rows() * padded_channels; }
};

class CudaFormat final : public ActivationFormat {
 public:
  CudaFormat(ElementType type, bool plain) : type_(type), plain_(plain) {}
  ElementType type() const noexcept { return type_; }
  bool is_plain() const noexcept { return plain_; }

 private:
  ElementType type_;
  bool plain_;
};

std::int64_t padded_channels(std::int64_t channels, ElementType type);
// The packs of one pixel.
std::int64_t packs_of(const ImageLayout& layout, ElementType type);
// An activation in the native layout.
ActivationSpec activation_of(const Shape& shape, ElementType type);
ActivationSpec plain_activation_of(const Shape& shape);
// The output of a layer in the native layout, in the input's type.
ActivationSpec output_of(const LayerSpec& spec, const ActivationSpec& input);

// Throws an internal error when another backend made the activation.
const CudaFormat& format_of(const ActivationSpec& activation);
bool is_plain(const ActivationSpec& activation);
// The extents of an activation in the native layout. Throws an internal error for a plain one.
ImageLayout layout_of(const ActivationSpec& activation);

// The gradients of one activation, from each layer that reads it. Kernels add them when they load them.
struct GradientSum {
  const void* first = nullptr;
  const void* second = nullptr;  // may be null, as may the third
  const void* third = nullptr;
};

// Divides an activation among a grid by rows: each thread has one pack of channels and loops over pixels ("rows"), with
// coalesced accesses. For kernels with per-channel sums or values.
struct RowGrid {
  static constexpr int kThreads = 256;  // of a block, unless RowLimits says otherwise
  static constexpr int kWidest = 32;    // packs that a warp reads in one access
  // 128 bytes: a cache line. A last block that finishes the sums of a column then has few channels to finish.
  static constexpr int kWidestOfSums = 8;

  std::int64_t rows = 0;
  std::int64_t chunk_rows = 0;  // of a block; the last chunk may have fewer
  int packs = 0;                // from one row to the next
  int width = 0;                // packs of a row per block; the last block may have fewer
  int height = 0;               // rows of a block per iteration; threads beyond width * height are idle
  int columns = 0;              // blocks per row
  int chunks = 0;
  int threads = kThreads;
};

// How finely an activation is divided.
struct RowLimits {
  std::int64_t blocks = 1;          // at most about as many
  int width = RowGrid::kWidest;     // packs of a row per block, at most
  int threads = RowGrid::kThreads;  // of a block
  int rows = 4;                     // of a thread, at least
};
RowGrid share_rows(const ImageLayout& layout, ElementType type, const RowLimits& limits);
// For sums: the width is a power of two, so that the same packs of several rows lie in a warp.
RowGrid share_rows_for_sums(const ImageLayout& layout, ElementType type, const RowLimits& limits);

}  // namespace tutti::cuda
