#pragma once
// One of a convolution's two activations, as the loops of tiles walk over it.

#include "backend/cpu/channel_layout.hpp"
#include "backend/cpu/tiles/tile_kernels.hpp"

namespace tutti::cpu {

struct TileSide {
  std::int64_t image, block, row, column;  // strides
  std::int64_t rows, columns, channels;
};

inline TileSide side_of(const Desc& desc, int lanes) {
  const ChannelLayout layout(desc);
  const auto dims = dims_of(desc);
  return {.image = layout.blocks() * layout.pixels() * layout.period(),
          .block = layout.blocks() == 1 ? lanes : layout.pixels() * layout.period(),
          .row = dims[3] * layout.period(),
          .column = layout.period(),
          .rows = dims[2],
          .columns = dims[3],
          .channels = dims[1]};
}

template <class T>
TileImage<T> image_of(const TileSide& side, T* values) {
  return {values, side.image, side.block, side.row, side.column};
}

}  // namespace tutti::cpu
