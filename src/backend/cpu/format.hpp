#pragma once
// Activation layouts as oneDNN memory descriptors. Layouts with blocks of channels are padded with zeros, which
// oneDNN's primitives require and preserve.

#include "tutti/backend/layer.hpp"

#include "backend/cpu/element.hpp"

#include <dnnl.hpp>

#include <algorithm>
#include <memory>
#include <span>

namespace tutti::cpu {

using Desc = dnnl::memory::desc;

struct Format final : public ActivationFormat {
  explicit Format(Desc layout) : desc(std::move(layout)) {}
  Desc desc;
};

dnnl::memory::dims dims_of(const Shape& shape);

using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;

dnnl::memory::dims dims_of(const Desc& desc);
Type type_of(const Desc& desc);
// The name of the layout: plain, channels last, or blocks of 8 or 16 channels. Throws an internal error for others.
Tag tag_of(const Desc& desc);

bool is_activation(const Desc& desc);  // whether it has one of these layouts, in f32 or bf16

// Dense, row-major: the layout of canonical values.
Desc plain(const dnnl::memory::dims& dims, Type type = Type::f32);
// Dense with the channels innermost; `dims` are N, C, H, W.
Desc channels_last(const dnnl::memory::dims& dims, Type type);
// A layout that oneDNN chooses.
Desc any(const dnnl::memory::dims& dims, Type type);
// The same layout for elements of another type.
Desc with_type(const Desc& desc, Type type);

bool is_plain(const Desc& desc);
bool pads_channels(const Desc& desc);

ActivationSpec activation_of(const Shape& shape, const Desc& desc);
// Throws when another backend made the activation.
const Desc& desc_of(const ActivationSpec& activation);

// A contiguous segment of one block: element i belongs to the block's channel i % period.
struct Segment {
  std::int64_t first = 0;  // index in the tensor; the first element of a pixel
  std::int64_t elements = 0;
  std::int64_t period = 1;
};

// The memory layout of an activation's channels. One description covers every layout that layers exchange: each sample
// is a sequence of channel blocks, each block a sequence of pixels with `period` channels innermost. The
// period is 1 for plain images, all channels for channels last, and 8 or 16 for blocked layouts.
class ChannelLayout {
 public:
  // Throws an internal error for other layouts.
  explicit ChannelLayout(const Desc& desc);

  std::int64_t samples() const noexcept { return samples_; }
  std::int64_t channels() const noexcept { return channels_; }
  std::int64_t pixels() const noexcept { return pixels_; }
  std::int64_t blocks() const noexcept { return blocks_; }
  std::int64_t period() const noexcept { return period_; }
  // Whether the channels of a pixel are adjacent. Images of one pixel are the same plain and channels-last.
  bool adjacent_channels() const noexcept { return blocks_ == 1 || (period_ == 1 && pixels_ == 1); }
  // All values of the tensor, including channel padding.
  std::int64_t elements() const noexcept { return samples_ * blocks_ * pixels_ * period_; }
  std::int64_t channels_of(std::int64_t block) const { return std::min(period_, channels_ - block * period_); }

  // The number of segments that make up one block; it does not depend on threads.
  std::int64_t segments() const noexcept;
  Segment segment(std::int64_t block, std::int64_t index) const;

  std::int64_t index_of(std::int64_t sample, std::int64_t channel, std::int64_t pixel) const {
    return ((sample * blocks_ + channel / period_) * pixels_ + pixel) * period_ + channel % period_;
  }
  // The same layout and type for images of one pixel each.
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

// The layer for the type in which its input is stored.
template <template <class> class TypedLayer, class... Arguments>
std::unique_ptr<Layer> make_typed(const LayerRequest& request, const Arguments&... arguments) {
  if (is_bf16(desc_of(request.input))) return std::make_unique<TypedLayer<Bf16>>(arguments...);
  return std::make_unique<TypedLayer<float>>(arguments...);
}

}  // namespace tutti::cpu
