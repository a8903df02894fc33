#pragma once
// All images of an activation that has its channels last or in blocks of 16.

#include "backend/cpu/channel_layout.hpp"
#include "backend/cpu/tiles/lane_image.hpp"
#include "backend/cpu/tiles/tile_side.hpp"
#include "backend/cpu/tiles/tile_work.hpp"

namespace tutti::cpu {

struct LaneSide : TileSide {
  explicit LaneSide(const Desc& desc) : TileSide(side_of(desc, kImageLanes)) {
    const ChannelLayout layout(desc);
    stored = layout.blocks() * layout.period();
  }
  static bool holds(const Desc& desc) {
    const ChannelLayout layout(desc);
    return layout.blocks() == 1 || layout.period() == kImageLanes;
  }

  std::int64_t panels() const { return parts_of(channels, kPanel); }
  std::int64_t blocks() const { return panels() * 2; }
  std::int64_t lanes() const { return panels() * kPanel; }

  std::int64_t stored;  // channels, with those that pad a block
};

template <class T>
LaneImage<T> image_of(const LaneSide& side, T* values, std::int64_t index) {
  return {values + index * side.image, side.block, side.row, side.column, side.rows, side.columns, side.stored};
}

}  // namespace tutti::cpu
