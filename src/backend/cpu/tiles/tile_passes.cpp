#include "backend/cpu/tiles/tile_passes.hpp"

#include "backend/cpu/tiles/tile_work.hpp"

#include <algorithm>

namespace tutti::cpu {
namespace {

constexpr std::int64_t kSlabTiles = 56;    // worked on at a time, so that their points stay in a core's cache
constexpr std::int64_t kBlockSteps = 128;  // words of a product at a time

// Either all windows' points are kept, and tiles are worked off slab by slab, or all tiles' points are, and windows are
// worked off panel by panel of outputs: whichever takes less memory.
template <class T>
class Convolve : TilePass<T> {
 public:
  Convolve(const TileKernels<T>& kernels, CpuStream& stream, const TileConvolution<T>& what)
      : TilePass<T>(kernels, stream),
        what_(what),
        grid_(this->grid_of(what.to)),
        tiles_(what.images * grid_.tiles_down * grid_.tiles_across),
        steps_(std::min(kBlockSteps * kernels.pack, what.from.channels)),
        blocks_(parts_of(what.from.channels, steps_)),
        panels_(what.to.channels / this->panel()),
        filters_{kernels.points, this->words(steps_), this->panel()},
        slab_{kernels.points, std::min(kSlabTiles, tiles_), this->words(what.from.channels)},
        all_{kernels.points, tiles_, slab_.columns} {}

  void run() {
    const std::int64_t kept_filters = panels_ * blocks_ * filters_.floats();
    if (kept_filters <= all_.floats()) {
      slab_by_slab(kept_filters);
    } else {
      panel_by_panel();
    }
  }

 private:
  void slab_by_slab(std::int64_t kept_filters);
  void panel_by_panel();
  float* scratch(std::int64_t floats) {
    return static_cast<float*>(this->stream_.scratch(static_cast<std::size_t>(floats) * sizeof(float)));
  }

  void transform(const TileRange& tiles, float* to, const PointMatrices& matrices) const {
    this->kernels_.inputs({image_of(what_.from, what_.values), this->seen_from(what_.from, grid_, what_.padding), tiles,
                           what_.from.channels / this->kernels_.lanes, to, matrices.stride()});
  }
  void prepare(std::int64_t panel, std::int64_t block, float* to) const {
    const std::int64_t outputs_stride = (what_.turned ? what_.to : what_.from).channels * kTaps;
    const std::int64_t lane = panel * this->panel();
    const std::int64_t step = block * steps_;
    const std::int64_t first =
        what_.turned ? step * outputs_stride + lane * kTaps : lane * outputs_stride + step * kTaps;
    const std::int64_t steps = std::min(steps_, what_.from.channels - step);
    this->kernels_.windows({what_.windows + first, outputs_stride, steps, what_.turned, to, filters_.stride()});
  }
  // sums[point][row][lane] of the tiles of `points`.
  void multiply(const float* points, const PointMatrices& matrices, std::int64_t rows, std::int64_t block,
                const float* filters, const PointMatrices& sums, float* to) const {
    const std::int64_t steps = std::min(steps_, what_.from.channels - block * steps_);
    for (int point = 0; point < this->kernels_.points; ++point) {
      TilePass<T>::multiply(true, rows,
                            {points + point * matrices.stride() + this->words(block * steps_), matrices.columns,
                             filters + point * filters_.stride(), this->panel(), this->words(steps),
                             to + point * sums.stride(), block > 0});
    }
  }
  void deliver(const float* sums, const PointMatrices& matrices, std::int64_t panel, const TileRange& tiles) const {
    TileImage<T> to = image_of(what_.to, what_.results);
    to.values += panel * 2 * to.block;
    this->kernels_.outputs({sums, matrices.stride(), to, grid_, tiles,
                            what_.bias == nullptr ? nullptr : what_.bias + panel * this->panel(), what_.relu});
  }

  const TileConvolution<T> what_;
  TileGrid grid_;
  std::int64_t tiles_;
  std::int64_t steps_;  // of a block
  std::int64_t blocks_;
  std::int64_t panels_;
  PointMatrices filters_;  // of a panel and a block
  PointMatrices slab_;
  PointMatrices all_;
};

template <class T>
void Convolve<T>::slab_by_slab(std::int64_t kept_filters) {
  const PointMatrices sums{slab_.points, slab_.rows, this->panel()};
  const std::int64_t own = slab_.floats() + sums.floats();
  float* const filters = scratch(kept_filters + this->stream_.workers().size() * own);
  share_out(this->stream_, panels_ * blocks_, [&](int, std::int64_t item) {
    prepare(item / blocks_, item % blocks_, filters + item * filters_.floats());
  });
  share_out(this->stream_, parts_of(tiles_, slab_.rows), [&](int worker, std::int64_t slab) {
    float* const points = filters + kept_filters + worker * own;
    float* const products = points + slab_.floats();
    const TileRange tiles{slab * slab_.rows, std::min(slab_.rows, tiles_ - slab * slab_.rows)};
    transform(tiles, points, slab_);
    for (std::int64_t panel = 0; panel < panels_; ++panel) {
      for (std::int64_t block = 0; block < blocks_; ++block) {
        multiply(points, slab_, tiles.count, block, filters + (panel * blocks_ + block) * filters_.floats(), sums,
                 products);
      }
      deliver(products, sums, panel, tiles);
    }
  });
}

template <class T>
void Convolve<T>::panel_by_panel() {
  const PointMatrices sums{all_.points, tiles_, this->panel()};
  const std::int64_t own = filters_.floats() + sums.floats();
  float* const points = scratch(all_.floats() + this->stream_.workers().size() * own);
  share_out(this->stream_, parts_of(tiles_, slab_.rows), [&](int, std::int64_t slab) {
    const std::int64_t first = slab * slab_.rows;
    transform({first, std::min(slab_.rows, tiles_ - first)}, points + first * all_.columns, all_);
  });
  share_out(this->stream_, panels_, [&](int worker, std::int64_t panel) {
    float* const filters = points + all_.floats() + worker * own;
    float* const products = filters + filters_.floats();
    for (std::int64_t block = 0; block < blocks_; ++block) {
      prepare(panel, block, filters);
      multiply(points, all_, tiles_, block, filters, sums, products);
    }
    deliver(products, sums, panel, {0, tiles_});
  });
}

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
    const int workers = this->stream_.workers().size();
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
void convolve(const TileKernels<T>& kernels, CpuStream& stream, const TileConvolution<T>& what) {
  Convolve<T>(kernels, stream, what).run();
}

template void convolve(const TileKernels<float>&, CpuStream&, const TileConvolution<float>&);
template void convolve(const TileKernels<Bf16>&, CpuStream&, const TileConvolution<Bf16>&);

template <class T>
void compare(const TileKernels<T>& kernels, CpuStream& stream, const TileComparison<T>& what) {
  Compare<T>(kernels, stream, what).run();
}

template void compare(const TileKernels<float>&, CpuStream&, const TileComparison<float>&);
template void compare(const TileKernels<Bf16>&, CpuStream&, const TileComparison<Bf16>&);

}  // namespace tutti::cpu
