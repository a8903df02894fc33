#pragma once
// Memory layouts of activations.

#include "tutti/backend/layer.hpp"
#include "tutti/backend/tensor.hpp"

#include "backend/cpu/element.hpp"

#include <algorithm>
#include <memory>

namespace tutti::cpu {

// plain: row-major. channels_last: the channels are innermost. blocks: blocks of 16 channels, each with its pixels'
// channels innermost; channels that would not fill them are channels-last instead.
enum class ChannelOrder { plain, channels_last, blocks };

// How an activation is stored. The axes of images are samples, channels, rows and columns; other activations are plain.
class Layout {
 public:
  Layout(const Shape& shape, ElementType type, ChannelOrder order);

  const Shape& shape() const noexcept { return shape_; }
  ElementType type() const noexcept { return type_; }
  ChannelOrder order() const noexcept { return order_; }
  bool operator==(const Layout&) const = default;

  std::size_t bytes() const;
  bool is_plain() const noexcept { return order_ == ChannelOrder::plain; }
  bool is_bf16() const noexcept { return type_ == ElementType::bf16; }
  Layout with_type(ElementType type) const { return {shape_, type, order_}; }

 private:
  Shape shape_;
  ElementType type_ = ElementType::f32;
  ChannelOrder order_ = ChannelOrder::plain;
};

// Plain, in f32: the layout of canonical values.
Layout plain(const Shape& shape);

struct Format final : public ActivationFormat {
  explicit Format(const Layout& of) : layout(of) {}
  Layout layout;
};

ActivationSpec activation_of(const Layout& layout);
// Throws when another backend made the activation, and for a shape that is not its format's.
const Layout& layout_of(const ActivationSpec& activation);

// A contiguous segment of one block: element i belongs to the block's channel i % period.
struct Segment {
  std::int64_t first = 0;  // index in the tensor; the first element of a pixel
  std::int64_t elements = 0;
  std::int64_t period = 1;
};

// The memory layout of an activation's channels. One description covers every layout that layers exchange: each sample
// is a sequence of channel blocks, each block a sequence of pixels with `period` channels innermost. The
// period is 1 for plain images, all channels for channels last, and 16 for blocks.
class ChannelLayout {
 public:
  explicit ChannelLayout(const Layout& layout);

  std::int64_t samples() const noexcept { return samples_; }
  std::int64_t channels() const noexcept { return channels_; }
  std::int64_t pixels() const noexcept { return pixels_; }
  std::int64_t blocks() const noexcept { return blocks_; }
  std::int64_t period() const noexcept { return period_; }
  // Whether the channels of a pixel are adjacent. Images of one pixel are the same plain and channels-last.
  bool adjacent_channels() const noexcept { return blocks_ == 1 || (period_ == 1 && pixels_ == 1); }
  std::int64_t elements() const noexcept { return samples_ * blocks_ * pixels_ * period_; }

  // The number of segments that make up one block; it does not depend on threads.
  std::int64_t segments() const noexcept;
  Segment segment(std::int64_t block, std::int64_t index) const;

  std::int64_t index_of(std::int64_t sample, std::int64_t channel, std::int64_t pixel) const {
    return ((sample * blocks_ + channel / period_) * pixels_ + pixel) * period_ + channel % period_;
  }

 private:
  std::int64_t samples_;
  std::int64_t channels_;
  std::int64_t pixels_;
  std::int64_t blocks_;
  std::int64_t period_;
};

// Channels last or in blocks of 16.
inline bool has_blocks_of_16(const Layout& layout) {
  return ChannelLayout(layout).adjacent_channels() || layout.order() == ChannelOrder::blocks;
}

// The layer for the type in which its input is stored.
template <template <class> class TypedLayer, class... Arguments>
std::unique_ptr<Layer> make_typed(const LayerRequest& request, const Arguments&... arguments) {
  if (layout_of(request.input).is_bf16()) return std::make_unique<TypedLayer<Bf16>>(arguments...);
  return std::make_unique<TypedLayer<float>>(arguments...);
}

}  // namespace tutti::cpu
