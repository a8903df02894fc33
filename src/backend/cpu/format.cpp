#include "backend/cpu/format.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <functional>
#include <numeric>
#include <optional>

namespace tutti::cpu {
namespace {

// Elements of one segment if the tensor is one block: large enough for a call, small enough for all workers to get
// some.
constexpr std::int64_t kSegmentElements = std::int64_t{1} << 15;

std::int64_t period_of(Tag tag, std::int64_t channels) {
  if (tag == Tag::nchw) return 1;
  if (tag == Tag::nChw8c) return 8;
  return tag == Tag::nChw16c ? 16 : channels;
}

}  // namespace

dnnl::memory::dims dims_of(const Shape& shape) {
  const auto extents = shape.extents();
  return {extents.begin(), extents.end()};
}

// oneDNN 2 and 3 have different names for these accessors.
dnnl::memory::dims dims_of(const Desc& desc) {
  return [](const auto& of) {
    if constexpr (requires { of.get_dims(); }) {
      return of.get_dims();
    } else {
      return of.dims();
    }
  }(desc);
}

Type type_of(const Desc& desc) {
  return [](const auto& of) {
    if constexpr (requires { of.get_data_type(); }) {
      return of.get_data_type();
    } else {
      return of.data_type();
    }
  }(desc);
}

namespace {

// A tag names the layout if it gives the same descriptor.
std::optional<Tag> find_tag(const Desc& desc) {
  const auto dims = dims_of(desc);
  const auto is = [&](Tag tag) { return Desc(dims, type_of(desc), tag) == desc; };
  if (dims.size() == 2 && is(Tag::nc)) return Tag::nc;
  if (dims.size() == 4) {
    for (const Tag tag : {Tag::nchw, Tag::nhwc, Tag::nChw8c, Tag::nChw16c}) {
      if (is(tag)) return tag;
    }
  }
  return std::nullopt;
}

}  // namespace

Tag tag_of(const Desc& desc) {
  if (const auto tag = find_tag(desc)) return *tag;
  throw Error(ErrorSource::internal,
              fmt::format("an activation with {} axes has a layout that the cpu backend does not support",
                          dims_of(desc).size()));
}

bool is_activation(const Desc& desc) {
  return find_tag(desc) && (type_of(desc) == Type::f32 || type_of(desc) == Type::bf16);
}

Desc plain(const dnnl::memory::dims& dims, Type type) {
  dnnl::memory::dims strides(dims.size(), 1);
  for (std::size_t axis = dims.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * dims[axis];
  return {dims, type, strides};
}

Desc channels_last(const dnnl::memory::dims& dims, Type type) { return {dims, type, Tag::nhwc}; }

Desc any(const dnnl::memory::dims& dims, Type type) { return {dims, type, Tag::any}; }

Desc with_type(const Desc& desc, Type type) {
  return type_of(desc) == type ? desc : Desc(dims_of(desc), type, tag_of(desc));
}

bool is_plain(const Desc& desc) { return desc == plain(dims_of(desc), type_of(desc)); }

bool pads_channels(const Desc& desc) { return desc.get_size() != plain(dims_of(desc), type_of(desc)).get_size(); }

ActivationSpec activation_of(const Shape& shape, const Desc& desc) {
  return {shape, std::make_shared<const Format>(desc), desc.get_size()};
}

const Desc& desc_of(const ActivationSpec& activation) {
  const auto* format = dynamic_cast<const Format*>(activation.format.get());
  if (format == nullptr) {
    throw Error(ErrorSource::internal, fmt::format("the format of an activation of {} was not made by the cpu backend",
                                                   activation.shape.text()));
  }
  return format->desc;
}

ChannelLayout::ChannelLayout(const Desc& desc)
    : type_(type_of(desc)),
      tag_(tag_of(desc)),
      samples_(dims_of(desc).at(0)),
      channels_(dims_of(desc).at(1)),
      period_(period_of(tag_, channels_)) {
  const auto dims = dims_of(desc);
  pixels_ = std::accumulate(dims.begin() + 2, dims.end(), std::int64_t{1}, std::multiplies());
  blocks_ = (channels_ + period_ - 1) / period_;
}

std::int64_t ChannelLayout::segments() const noexcept {
  if (blocks_ > 1) return samples_;
  const std::int64_t rows = std::max<std::int64_t>(1, kSegmentElements / period_);
  return (samples_ * pixels_ + rows - 1) / rows;
}

Segment ChannelLayout::segment(std::int64_t block, std::int64_t index) const {
  if (blocks_ > 1) return {(index * blocks_ + block) * pixels_ * period_, pixels_ * period_, period_};
  const std::int64_t rows = std::max<std::int64_t>(1, kSegmentElements / period_);
  const std::int64_t first = index * rows;
  return {first * period_, std::min(rows, samples_ * pixels_ - first) * period_, period_};
}

Desc ChannelLayout::one_pixel() const { return {{samples_, channels_, 1, 1}, type_, tag_}; }

bool is_bf16(const Desc& desc) { return type_of(desc) == dnnl::memory::data_type::bf16; }

}  // namespace tutti::cpu
