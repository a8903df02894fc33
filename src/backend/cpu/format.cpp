#include "backend/cpu/format.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

namespace tutti::cpu {
namespace {

// Elements of one segment if the tensor is one block: large enough for a call, small enough for all workers to get
// some.
constexpr std::int64_t kSegmentElements = std::int64_t{1} << 15;

std::int64_t pixels_of(const Shape& shape) {
  std::int64_t pixels = 1;
  for (int axis = 2; axis < shape.ndim(); ++axis) pixels *= shape[axis];
  return pixels;
}

}  // namespace

Layout::Layout(const Shape& shape, ElementType type, ChannelOrder order) : shape_(shape), type_(type), order_(order) {
  const bool is_image = shape.ndim() == 4;
  if (order_ == ChannelOrder::blocks && is_image && shape[1] % kBlockChannels != 0) {
    order_ = ChannelOrder::channels_last;
  }
  // Images of one channel or of one pixel are the same plain and channels-last.
  const bool same = order_ == ChannelOrder::channels_last && is_image && (shape[1] == 1 || pixels_of(shape) == 1);
  if (!is_image || same) order_ = ChannelOrder::plain;
}

std::size_t Layout::bytes() const {
  return static_cast<std::size_t>(ChannelLayout(*this).elements()) * bytes_of(type_);
}

Layout plain(const Shape& shape) { return {shape, ElementType::f32, ChannelOrder::plain}; }

ActivationSpec activation_of(const Layout& layout) {
  return {layout.shape(), std::make_shared<const Format>(layout), layout.bytes()};
}

const Layout& layout_of(const ActivationSpec& activation) {
  const auto* format = dynamic_cast<const Format*>(activation.format.get());
  if (format == nullptr || format->layout.shape() != activation.shape) {
    throw Error(ErrorSource::internal, fmt::format("the format of an activation of {} was not made by the cpu backend",
                                                   activation.shape.text()));
  }
  return format->layout;
}

ChannelLayout::ChannelLayout(const Layout& layout)
    : samples_(layout.shape()[0]),
      channels_(layout.shape()[1]),
      pixels_(pixels_of(layout.shape())),
      period_(std::max<std::int64_t>(channels_, 1)) {
  if (layout.order() == ChannelOrder::blocks) period_ = kBlockChannels;
  if (layout.is_plain() && layout.shape().ndim() > 2) period_ = 1;
  blocks_ = channels_ / period_;
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

}  // namespace tutti::cpu
