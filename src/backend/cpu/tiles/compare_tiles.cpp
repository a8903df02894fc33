#include "backend/cpu/tiles/compare_tiles.hpp"

#include "backend/cpu/tiles/tile_pass.hpp"

#include <algorithm>

namespace tutti::cpu {
namespace {

constexpr std::int64_t kMostSlabTiles = 112;  // many, since each slab's products are added to all sums

// Either all sums are kept, and tiles are worked off slab by slab, or all tiles' points are.
template <class T>
class Compare : TilePass<T> {
 public:
  Compare(const TileKernels<T>& kernels, CpuStream& stream, const TileComparison<T>& what)
      : TilePass<T>(kernels, stream),
        what_(what),
        grid_(this->grid_of(what.output)),
        tiles_(what.images * grid_.tiles_down * grid_.tiles_across),
        panels_(what.input.channels / this->panel()),
        sums_{kernels.points, what.output.channels, this->panel()} {}

  void run() {
    const Slab all = slab_of(tiles_);
    const bool in_one = all.floats() <= panels_ * sums_.floats();
    const Slab slab = in_one ? all : slab_of(std::min(kMostSlabTiles, tiles_));
    const int workers = this->stream_.team().size();
    points_ = static_cast<float*>(this->stream_.scratch(
        static_cast<std::size_t>(slab.floats() + (in_one ? workers : panels_) * sums_.floats()) * sizeof(float)));
    sums_at_ = points_ + slab.floats();
    if (in_one) {
      at_once(slab);
    } else {
      slab_by_slab(slab);
    }
  }

 private:
  struct Slab {
    std::int64_t tiles;
    PointMatrices inputs, gradients;
    std::int64_t floats() const { return inputs.floats() + gradients.floats(); }
  };
  Slab slab_of(std::int64_t tiles) const {
    const std::int64_t words = this->words(tiles);
    return {tiles,
            {this->kernels_.points, words, what_.input.channels},
            {this->kernels_.points, words, what_.output.channels}};
  }
  float* gradient_points(const Slab& slab) const { return points_ + slab.inputs.floats(); }

  void at_once(const Slab& all) const {
    const TileRange tiles{0, tiles_};
    transform(tiles, all);
    share_out(this->stream_, panels_, [&](int worker, std::int64_t panel) {
      float* const sums = sums_at_ + worker * sums_.floats();
      for (int point = 0; point < this->kernels_.points; ++point) multiply(tiles, all, {panel, point}, sums);
      collect(sums, panel);
    });
  }
  void slab_by_slab(const Slab& slab) const {
    const int points = this->kernels_.points;
    for (std::int64_t first = 0; first < tiles_; first += slab.tiles) {
      const TileRange tiles{first, std::min(slab.tiles, tiles_ - first)};
      transform(tiles, slab);
      share_out(this->stream_, panels_ * points, [&](int, std::int64_t item) {
        const std::int64_t panel = item / points;
        multiply(tiles, slab, {panel, item % points}, sums_at_ + panel * sums_.floats());
      });
    }
    share_out(this->stream_, panels_,
              [&](int, std::int64_t panel) { collect(sums_at_ + panel * sums_.floats(), panel); });
  }

  void transform(const TileRange& tiles, const Slab& slab) const {
    constexpr std::int64_t kEach = 14;  // even, as tiles may come in pairs
    const int lanes = this->kernels_.lanes;
    share_out(this->stream_, parts_of(tiles.count, kEach), [&](int, std::int64_t part) {
      const TileRange mine{tiles.first + part * kEach, std::min(kEach, tiles.count - part * kEach)};
      const std::int64_t row = this->words(part * kEach);
      this->kernels_.paired_inputs(
          {image_of(what_.input, what_.inputs), this->seen_from(what_.input, grid_, what_.padding), mine,
           what_.input.channels / lanes, points_ + row * slab.inputs.columns, slab.inputs.stride()});
      this->kernels_.paired_gradients({image_of(what_.output, what_.gradients), grid_, mine,
                                       what_.output.channels / lanes,
                                       gradient_points(slab) + row * slab.gradients.columns, slab.gradients.stride()});
    });
  }
  struct PanelPoint {
    std::int64_t panel, point;
  };
  void multiply(const TileRange& tiles, const Slab& slab, const PanelPoint& at, float* sums) const {
    TilePass<T>::multiply(false, what_.output.channels,
                          {gradient_points(slab) + at.point * slab.gradients.stride(), slab.gradients.columns,
                           points_ + at.point * slab.inputs.stride() + at.panel * this->panel(), slab.inputs.columns,
                           this->words(tiles.count), sums + at.point * sums_.stride(), tiles.first > 0});
  }
  void collect(const float* sums, std::int64_t panel) const {
    this->kernels_.collect({sums, sums_.stride(), what_.output.channels,
                            what_.window_gradients + panel * this->panel() * kTaps, what_.input.channels * kTaps});
  }

  const TileComparison<T> what_;
  TileGrid grid_;
  std::int64_t tiles_;
  std::int64_t panels_;
  PointMatrices sums_;  // of a panel
  float* points_ = nullptr;
  float* sums_at_ = nullptr;
};

}  // namespace

template <class T>
void compare(const TileKernels<T>& kernels, CpuStream& stream, const TileComparison<T>& what) {
  Compare<T>(kernels, stream, what).run();
}

template void compare(const TileKernels<float>&, CpuStream&, const TileComparison<float>&);
template void compare(const TileKernels<Bf16>&, CpuStream&, const TileComparison<Bf16>&);

}  // namespace tutti::cpu
