#include "backend/cpu/channel_layout.hpp"

#include <functional>
#include <numeric>

namespace tutti::cpu {
namespace {

// Elements of one stretch where a whole tensor is one block: enough to be worth a call, few enough to share out.
constexpr std::int64_t kStretchElements = std::int64_t{1} << 15;

std::int64_t period_of(Tag tag, std::int64_t channels) {
  if (tag == Tag::nchw) return 1;
  if (tag == Tag::nChw8c) return 8;
  return tag == Tag::nChw16c ? 16 : channels;
}

}  // namespace

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

std::int64_t ChannelLayout::stretches() const noexcept {
  if (blocks_ > 1) return samples_;
  const std::int64_t rows = std::max<std::int64_t>(1, kStretchElements / period_);
  return (samples_ * pixels_ + rows - 1) / rows;
}

Stretch ChannelLayout::stretch(std::int64_t block, std::int64_t index) const {
  if (blocks_ > 1) return {(index * blocks_ + block) * pixels_ * period_, pixels_ * period_, period_};
  const std::int64_t rows = std::max<std::int64_t>(1, kStretchElements / period_);
  const std::int64_t first = index * rows;
  return {first * period_, std::min(rows, samples_ * pixels_ - first) * period_, period_};
}

Desc ChannelLayout::one_pixel() const { return {{samples_, channels_, 1, 1}, type_, tag_}; }

bool is_bf16(const Desc& desc) { return type_of(desc) == dnnl::memory::data_type::bf16; }

}  // namespace tutti::cpu
