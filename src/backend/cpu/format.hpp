#pragma once
// Layouts: between the shapes of the seam and oneDNN's memory descriptors. Layouts with blocks of channels
// pad these; padding holds zeros, which oneDNN's primitives expect and keep.

#include "tutti/backend/layer.hpp"

#include "backend/cpu/element.hpp"

#include <dnnl.hpp>

#include <algorithm>
#include <memory>
#include <span>

namespace tutti::cpu {

using Desc = dnnl::memory::desc;

class Format final : public ActivationFormat {
 public:
  explicit Format(Desc desc) : desc_(std::move(desc)) {}
  const Desc& desc() const noexcept { return desc_; }

 private:
  Desc desc_;
};

dnnl::memory::dims dims_of(const Shape& shape);

using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

dnnl::memory::dims dims_of(const Desc& desc);
Type type_of(const Desc& desc);
// The name of the layout: plain, channels last, or blocks of 8 or 16 channels. Throws an internal error for others.
Tag tag_of(const Desc& desc);

// Dense, row-major: how canonical values lie.
Desc plain(const dnnl::memory::dims& dims, Type type = Type::f32);
// Dense with the channels innermost; `dims` are N, C, H, W.
Desc channels_last(const dnnl::memory::dims& dims, Type type);
// Left to oneDNN.
Desc any(const dnnl::memory::dims& dims, Type type);
// The same layout for elements of another type.
Desc with_type(const Desc& desc, Type type);

bool is_plain(const Desc& desc);
bool pads_channels(const Desc& desc);

ActivationSpec activation_of(const Shape& shape, const Desc& desc);
// Throws when another backend made the activation.
const Desc& desc_of(const ActivationSpec& activation);

// A stretch of memory that belongs to one block: its element i is of the block's channel i % period.
struct Stretch {
  std::int64_t first = 0;  // element of the tensor; the first of a pixel
  std::int64_t elements = 0;
  std::int64_t period = 1;
};

// Where the channels of an activation lie. Every layout that layers exchange is seen as one: blocks of channels, in
// each sample one after another, of which each holds its pixels one after another with `period` channels innermost.
// Plain images have a period of 1, channels last all channels, blocked layouts 8 or 16.
class ChannelLayout {
 public:
  // Throws an internal error for a layout that is none of these.
  explicit ChannelLayout(const Desc& desc);

  std::int64_t samples() const noexcept { return samples_; }
  std::int64_t channels() const noexcept { return channels_; }
  std::int64_t pixels() const noexcept { return pixels_; }
  std::int64_t blocks() const noexcept { return blocks_; }
  std::int64_t period() const noexcept { return period_; }
  // All values of the tensor, the padding of channels included.
  std::int64_t elements() const noexcept { return samples_ * blocks_ * pixels_ * period_; }
  std::int64_t channels_of(std::int64_t block) const { return std::min(period_, channels_ - block * period_); }

  // The stretches that make up one block, cut without regard to threads.
  std::int64_t stretches() const noexcept;
  Stretch stretch(std::int64_t block, std::int64_t index) const;

  std::int64_t index_of(std::int64_t sample, std::int64_t channel, std::int64_t pixel) const {
    return ((sample * blocks_ + channel / period_) * pixels_ + pixel) * period_ + channel % period_;
  }
  // The same layout and number format for images of one pixel each.
  Desc one_pixel() const;

 private:
  Type type_;
  Tag tag_;
  std::int64_t samples_;
  std::int64_t channels_;
  std::int64_t pixels_;
  std::int64_t blocks_;
  std::int64_t period_;
};

bool is_bf16(const Desc& desc);

// A layer for the numbers in which its input is stored.
template <template <class> class TypedLayer, class... Arguments>
std::unique_ptr<Layer> make_typed(const LayerRequest& request, const Arguments&... arguments) {
  if (is_bf16(desc_of(request.input))) return std::make_unique<TypedLayer<Bf16>>(arguments...);
  return std::make_unique<TypedLayer<float>>(arguments...);
}

}  // namespace tutti::cpu
