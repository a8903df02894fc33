#pragma once
// All images of an activation that has its channels last or in blocks of 16.

#include "backend/cpu/channel_layout.hpp"
#include "backend/cpu/tiles/lane_image.hpp"
#include "backend/cpu/tiles/tile_work.hpp"

namespace tutti::cpu {

struct LaneSide {
  explicit LaneSide(const Desc& desc) {
    const ChannelLayout layout(desc);
    const auto dims = dims_of(desc);
    rows = dims[2];
    columns = dims[3];
    channels = dims[1];
    stored = layout.blocks() * layout.period();
    image_stride = layout.pixels() * stored;
    block_stride = layout.blocks() == 1 ? kImageLanes : layout.pixels() * layout.period();
    column_stride = layout.period();
  }
  static bool holds(const Desc& desc) {
    const ChannelLayout layout(desc);
    return layout.blocks() == 1 || layout.period() == kImageLanes;
  }

  std::int64_t panels() const { return parts_of(channels, kPanel); }
  std::int64_t blocks() const { return panels() * 2; }
  std::int64_t lanes() const { return panels() * kPanel; }
  template <class T>
  LaneImage<T> image(T* values, std::int64_t index) const {
    return {values + index * image_stride, block_stride, columns * column_stride, column_stride, rows, columns, stored};
  }

  std::int64_t image_stride, block_stride, column_stride;
  std::int64_t rows, columns;
  std::int64_t channels;
  std::int64_t stored;  // channels, with those that pad a block
};

}  // namespace tutti::cpu
