#pragma once
// What the passes of a convolution by tiles share.

#include "backend/cpu/tiles/tile_side.hpp"
#include "backend/cpu/tiles/tile_work.hpp"

namespace tutti::cpu {

template <class T>
class TilePass {
 public:
  TilePass(const TileKernels<T>& kernels, CpuStream& stream) : kernels_(kernels), stream_(stream) {}

 protected:
  TileGrid grid_of(const TileSide& outputs) const {
    return {outputs.rows, outputs.columns, parts_of(outputs.rows, kernels_.tile),
            parts_of(outputs.columns, kernels_.tile), 0};
  }
  TileGrid seen_from(const TileSide& inputs, TileGrid grid, std::int64_t padding) const {
    return {inputs.rows, inputs.columns, grid.tiles_down, grid.tiles_across, padding};
  }
  void multiply(bool apart, std::int64_t rows, const ProductPass& product) const {
    cpu::multiply(kernels_, apart, rows, product);
  }
  std::int64_t panel() const { return 2 * kernels_.lanes; }
  std::int64_t words(std::int64_t numbers) const { return parts_of(numbers, kernels_.pack); }

  const TileKernels<T>& kernels_;
  CpuStream& stream_;
};

}  // namespace tutti::cpu
