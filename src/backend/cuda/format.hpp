#pragma once
// The layouts of activations in a GPU's memory. Within the network: samples, rows, columns, channels, in the type in
// which layers compute. Zeros pad the channels to a multiple of 16 bytes, and every layer keeps them zero. Plain: f32
// in canonical order, as loaders deliver and predictions need.

#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"

#include <cstdint>

namespace tutti::cuda {

// The bytes that a thread reads or writes at once. Channels are padded to whole packs.
inline constexpr std::size_t kPackBytes = 16;

// Plain numbers, for kernels too. A vector is an image of one pixel.
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
// An activation within the network.
ActivationSpec activation_of(const Shape& shape, ElementType type);
ActivationSpec plain_activation_of(const Shape& shape);
// The output of a layer for an input within the network, of the input's type.
ActivationSpec output_of(const LayerSpec& spec, const ActivationSpec& input);

// Throws an internal error when another backend made the activation.
const CudaFormat& format_of(const ActivationSpec& activation);
bool is_plain(const ActivationSpec& activation);
// The layout of an activation within the network. Throws an internal error for a plain one.
ImageLayout layout_of(const ActivationSpec& activation);

// The gradients of one activation, from each layer that reads it. Kernels add them up as they read them.
struct GradientSum {
  const void* first = nullptr;
  const void* second = nullptr;  // or null, as the third
  const void* third = nullptr;
};

// How a grid divides an activation by rows: each thread has one pack of channels and goes from pixel to pixel ("rows"),
// next to its neighbours in memory. For kernels with sums or numbers for each channel.
struct RowGrid {
  static constexpr int kThreads = 256;  // of a block

  std::int64_t rows = 0;
  std::int64_t chunk_rows = 0;  // of a block; the last chunk may have fewer
  int packs = 0;                // from one row to the next
  int width = 0;                // packs of a row that a block has, the last of a row perhaps fewer
  int height = 0;               // rows that a block has at a time; threads beyond width * height have none
  int columns = 0;              // blocks beside each other
  int chunks = 0;
};

// For kernels without results per block: many times the blocks that a GPU runs at once, so that multiprocessors that
// finish early find more.
inline constexpr std::int64_t kPassBlocks = 24 * 132;

// Divides the activation among at most about so many blocks.
RowGrid share_rows(const ImageLayout& layout, ElementType type, std::int64_t most_blocks);

}  // namespace tutti::cuda
