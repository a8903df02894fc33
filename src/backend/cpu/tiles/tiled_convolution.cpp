#include "backend/cpu/tiles/tiled_convolution.hpp"

#include "backend/cpu/tiles/tile_work.hpp"

#include <algorithm>
#include <type_traits>

namespace tutti::cpu {
namespace {

constexpr std::int64_t kSlabTiles = 56;    // processed at a time, so that their points stay in a core's cache
constexpr std::int64_t kBlockSteps = 128;  // words of a product at a time

// The tiles of an output.
template <class T>
TileGrid grid_of(const TileKernels<T>& kernels, const TileSide& outputs) {
  return {outputs.rows, outputs.columns, ceil_div(outputs.rows, kernels.tile_down),
          ceil_div(outputs.columns, kernels.tile_across), 0};
}
TileGrid seen_from(const TileSide& inputs, const TileGrid& grid, std::int64_t padding) {
  return {inputs.rows, inputs.columns, grid.tiles_down, grid.tiles_across, padding};
}

// A Winograd convolution: the forward pass, or the input gradient, which is a convolution with rotated windows.
template <class T>
struct TileConvolution {
  TileSide from;
  const T* values;
  TileSide to;
  T* results;
  std::int64_t images, padding;
  const float* windows;
  bool transposed;
  const float* bias;
  bool relu;
};

// Stores either the points of all windows and processes tiles in slabs, or the points of all tiles and processes
// windows in panels of outputs, whichever needs less memory.
template <class T>
class Convolve {
 public:
  Convolve(const TileKernels<T>& kernels, CpuStream& stream, const TileConvolution<T>& what)
      : kernels_(kernels),
        stream_(stream),
        what_(what),
        grid_(grid_of(kernels, what.to)),
        tiles_(what.images * grid_.tiles_down * grid_.tiles_across),
        steps_(std::min(kBlockSteps * kernels.pack, what.from.channels)),
        blocks_(ceil_div(what.from.channels, steps_)),
        panels_(what.to.channels / panel_),
        filters_{kernels.points, words(steps_), panel_},
        slab_{kernels.points, std::min(kSlabTiles, tiles_), words(what.from.channels)},
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

  void transform(const TileRange& tiles, float* to, const PointMatrices& matrices) const {
    kernels_.inputs({image_of(what_.from, what_.values), seen_from(what_.from, grid_, what_.padding), tiles,
                     what_.from.channels / kernels_.lanes, to, matrices.stride()});
  }
  void prepare(std::int64_t panel, std::int64_t block, float* to) const {
    const std::int64_t outputs_stride = (what_.transposed ? what_.to : what_.from).channels * kTaps;
    const std::int64_t lane = panel * panel_;
    const std::int64_t step = block * steps_;
    const std::int64_t first =
        what_.transposed ? step * outputs_stride + lane * kTaps : lane * outputs_stride + step * kTaps;
    const std::int64_t steps = std::min(steps_, what_.from.channels - step);
    kernels_.windows({what_.windows + first, outputs_stride, steps, what_.transposed, to, filters_.stride()});
  }
  // sums[point][row][lane] of the tiles of `points`.
  void multiply(const float* points, const PointMatrices& matrices, std::int64_t rows, std::int64_t block,
                const float* filters, const PointMatrices& sums, float* to) const {
    const std::int64_t steps = std::min(steps_, what_.from.channels - block * steps_);
    for (int point = 0; point < kernels_.points; ++point) {
      cpu::multiply(kernels_, true, rows,
                    {points + point * matrices.stride() + words(block * steps_), matrices.columns,
                     filters + point * filters_.stride(), panel_, words(steps), to + point * sums.stride(), block > 0});
    }
  }
  void deliver(const float* sums, const PointMatrices& matrices, std::int64_t panel, const TileRange& tiles) const {
    TileImage<T> to = image_of(what_.to, what_.results);
    to.values += channel_offset(to, panel * panel_);
    kernels_.outputs({sums, matrices.stride(), to, grid_, tiles,
                      what_.bias == nullptr ? nullptr : what_.bias + panel * panel_, what_.relu});
  }

  std::int64_t words(std::int64_t numbers) const { return ceil_div(numbers, kernels_.pack); }

  const TileKernels<T>& kernels_;
  CpuStream& stream_;
  std::int64_t panel_ = 2 * kernels_.lanes;
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
  const PointMatrices sums{slab_.points, slab_.rows, panel_};
  const std::int64_t own = slab_.floats() + sums.floats();
  float* const filters = stream_.scratch(kept_filters + stream_.workers() * own);
  parallel_for(stream_, panels_ * blocks_, [&](int, std::int64_t item) {
    prepare(item / blocks_, item % blocks_, filters + item * filters_.floats());
  });
  parallel_for(stream_, ceil_div(tiles_, slab_.rows), [&](int worker, std::int64_t slab) {
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
  const PointMatrices sums{all_.points, tiles_, panel_};
  const std::int64_t own = filters_.floats() + sums.floats();
  float* const points = stream_.scratch(all_.floats() + stream_.workers() * own);
  parallel_for(stream_, ceil_div(tiles_, slab_.rows), [&](int, std::int64_t slab) {
    const std::int64_t first = slab * slab_.rows;
    transform({first, std::min(slab_.rows, tiles_ - first)}, points + first * all_.columns, all_);
  });
  parallel_for(stream_, panels_, [&](int worker, std::int64_t panel) {
    float* const filters = points + all_.floats() + worker * own;
    float* const products = filters + filters_.floats();
    for (std::int64_t block = 0; block < blocks_; ++block) {
      prepare(panel, block, filters);
      multiply(points, all_, tiles_, block, filters, sums, products);
    }
    deliver(products, sums, panel, {0, tiles_});
  });
}

// The weight gradient of a Winograd convolution: at each point, the product of output gradients and inputs, summed over
// tiles.
template <class T>
struct WindowGradientProblem {
  TileSide input;
  const T* inputs;
  TileSide output;
  const T* gradients;
  std::int64_t images, padding;
  float* window_gradients;
};

constexpr std::int64_t kMaxSlabSteps = 112;  // words; large, since each slab's products are added to all sums

// Stores either all sums and processes tiles in slabs, or the points of all tiles.
template <class T>
class WindowGradient {
 public:
  WindowGradient(const TileKernels<T>& kernels, CpuStream& stream, const WindowGradientProblem<T>& what)
      : kernels_(kernels),
        stream_(stream),
        what_(what),
        grid_(grid_of(kernels, what.output)),
        tiles_(what.images * grid_.tiles_down * grid_.tiles_across),
        panels_(what.input.channels / panel_),
        sums_{kernels.points, what.output.channels, panel_} {}

  void run() {
    const Slab all = slab_of(tiles_);
    const bool in_one = all.floats() <= panels_ * sums_.floats();
    const Slab slab = in_one ? all : slab_of(std::min(kMaxSlabSteps * kernels_.pack, tiles_));
    const int workers = stream_.workers();
    points_ = stream_.scratch(slab.floats() + (in_one ? workers : panels_) * sums_.floats());
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
    const std::int64_t steps = words(tiles);
    return {tiles, {kernels_.points, steps, what_.input.channels}, {kernels_.points, steps, what_.output.channels}};
  }
  float* gradient_points(const Slab& slab) const { return points_ + slab.inputs.floats(); }

  void at_once(const Slab& all) const {
    const TileRange tiles{0, tiles_};
    transform(tiles, all);
    parallel_for(stream_, panels_, [&](int worker, std::int64_t panel) {
      float* const sums = sums_at_ + worker * sums_.floats();
      for (int point = 0; point < kernels_.points; ++point) multiply(tiles, all, {panel, point}, sums);
      collect(sums, panel);
    });
  }
  void slab_by_slab(const Slab& slab) const {
    for (std::int64_t first = 0; first < tiles_; first += slab.tiles) {
      const TileRange tiles{first, std::min(slab.tiles, tiles_ - first)};
      transform(tiles, slab);
      // All panels of a point in turn, as they share its gradients.
      parallel_for(stream_, kernels_.points * panels_, [&](int, std::int64_t item) {
        const std::int64_t panel = item % panels_;
        multiply(tiles, slab, {panel, item / panels_}, sums_at_ + panel * sums_.floats());
      });
    }
    parallel_for(stream_, panels_, [&](int, std::int64_t panel) { collect(sums_at_ + panel * sums_.floats(), panel); });
  }

  void transform(const TileRange& tiles, const Slab& slab) const {
    constexpr std::int64_t kEach = 14;  // even, as tiles may come in pairs
    const int lanes = kernels_.lanes;
    parallel_for(stream_, ceil_div(tiles.count, kEach), [&](int, std::int64_t part) {
      const TileRange mine{tiles.first + part * kEach, std::min(kEach, tiles.count - part * kEach)};
      const std::int64_t row = words(part * kEach);
      kernels_.paired_inputs({image_of(what_.input, what_.inputs), seen_from(what_.input, grid_, what_.padding), mine,
                              what_.input.channels / lanes, points_ + row * slab.inputs.columns, slab.inputs.stride()});
      kernels_.paired_gradients({image_of(what_.output, what_.gradients), grid_, mine, what_.output.channels / lanes,
                                 gradient_points(slab) + row * slab.gradients.columns, slab.gradients.stride()});
    });
  }
  struct PanelPoint {
    std::int64_t panel, point;
  };
  void multiply(const TileRange& tiles, const Slab& slab, const PanelPoint& at, float* sums) const {
    cpu::multiply(kernels_, false, what_.output.channels,
                  {gradient_points(slab) + at.point * slab.gradients.stride(), slab.gradients.columns,
                   points_ + at.point * slab.inputs.stride() + at.panel * panel_, slab.inputs.columns,
                   words(tiles.count), sums + at.point * sums_.stride(), tiles.first > 0});
  }
  void collect(const float* sums, std::int64_t panel) const {
    kernels_.collect({sums, sums_.stride(), what_.output.channels, what_.window_gradients + panel * panel_ * kTaps,
                      what_.input.channels * kTaps});
  }

  std::int64_t words(std::int64_t numbers) const { return ceil_div(numbers, kernels_.pack); }

  const TileKernels<T>& kernels_;
  CpuStream& stream_;
  std::int64_t panel_ = 2 * kernels_.lanes;
  const WindowGradientProblem<T> what_;
  TileGrid grid_;
  std::int64_t tiles_;
  std::int64_t panels_;
  PointMatrices sums_;  // of a panel
  float* points_ = nullptr;
  float* sums_at_ = nullptr;
};

// Transforming windows takes as long as the products of some tiles, and tiles that are mostly outside the image save
// nothing.
template <class T>
bool is_profitable(const TiledShape& shape, const TileKernels<T>& kernels) {
  const std::int64_t min_tiles = kernels.rounds ? 16 : 4;
  const TileSide outputs = side_of(shape.output);
  const TileGrid grid = grid_of(kernels, outputs);
  const std::int64_t tiles = shape.output.shape()[0] * grid.tiles_down * grid.tiles_across;
  const std::int64_t direct = shape.output.shape()[0] * outputs.rows * outputs.columns * kTaps;
  return tiles >= min_tiles && 5 * tiles * kernels.points <= 4 * direct;
}

// Registers of any width must be full.
bool fits(const TiledShape& shape) {
  const auto suits = [&](const Layout& layout) { return layout.shape()[1] / shape.groups % (2 * kMostLanes) == 0; };
  return shape.window == kWindow && shape.stride == 1 && shape.dilation == 1 && shape.padding < kWindow &&
         suits(shape.input) && suits(shape.output);
}

template <class T>
class Tiled final : public TiledConvolution {
 public:
  Tiled(const TileKernels<T>& kernels, const TiledShape& shape)
      : kernels_(kernels),
        input_(side_of(shape.input, shape.groups)),
        output_(side_of(shape.output, shape.groups)),
        images_(shape.input.shape()[0]),
        padding_(shape.padding) {}

  void forward(CpuStream& stream, const TiledForward& pass) const override {
    Convolve<T>(kernels_, stream,
                {input_, static_cast<const T*>(pass.input), output_, static_cast<T*>(pass.output), images_, padding_,
                 pass.windows, false, pass.bias, pass.relu})
        .run();
  }
  void backward_data(CpuStream& stream, const TiledBackwardData& pass) const override {
    Convolve<T>(kernels_, stream,
                {output_, static_cast<const T*>(pass.output_gradient), input_, static_cast<T*>(pass.input_gradient),
                 images_, kWindow - 1 - padding_, pass.windows, true, nullptr, false})
        .run();
  }
  void backward_weights(CpuStream& stream, const TiledBackwardWeights& pass) const override {
    WindowGradient<T>(kernels_, stream,
                      {input_, static_cast<const T*>(pass.input), output_, static_cast<const T*>(pass.output_gradient),
                       images_, padding_, pass.window_gradients})
        .run();
    if (pass.bias_gradient == nullptr) return;
    sum_bias(stream, output_, images_, static_cast<const T*>(pass.output_gradient), pass.bias_gradient);
  }

 private:
  const TileKernels<T>& kernels_;
  TileSide input_;
  TileSide output_;
  std::int64_t images_;
  std::int64_t padding_;
};

template <class T>
std::shared_ptr<const TiledConvolution> make_tiles(const TiledShape& shape) {
  const TileKernels<T>* kernels = &wide_tiles<T>();
  if constexpr (std::is_same_v<T, Bf16>) {
    // Points of narrow tiles take longer to compute, which pays off only with many channels. The choice must not depend
    // on the processor: those without fast products of bf16 give the same bits.
    constexpr std::int64_t kNarrowChannels = 64;
    const std::int64_t min_channels = std::min(shape.input.shape()[1], shape.output.shape()[1]) / shape.groups;
    if (min_channels >= kNarrowChannels) kernels = &narrow_tiles();
  }
  if (!fits(shape) || !is_profitable(shape, *kernels)) return nullptr;
  return std::make_shared<const Tiled<T>>(*kernels, shape);
}

// Groups of full blocks of channels, one after the other. Elsewhere, a group's channels may begin within a block.
template <class T>
class GroupByGroup final : public TiledConvolution {
 public:
  GroupByGroup(const TiledShape& shape, std::shared_ptr<const TiledConvolution> first)
      : first_(std::move(first)),
        groups_(shape.groups),
        input_(side_of(shape.input, groups_)),
        output_(side_of(shape.output, groups_)),
        windows_(output_.channels * input_.channels * shape.window * shape.window) {}

  void forward(CpuStream& stream, const TiledForward& pass) const override {
    for (std::int64_t group = 0; group < groups_; ++group) {
      first_->forward(stream, {of_group(input_, pass.input, group), pass.windows + group * windows_,
                               of_group(pass.bias, group), of_group(output_, pass.output, group), pass.relu});
    }
  }
  void backward_data(CpuStream& stream, const TiledBackwardData& pass) const override {
    for (std::int64_t group = 0; group < groups_; ++group) {
      first_->backward_data(stream, {of_group(output_, pass.output_gradient, group), pass.windows + group * windows_,
                                     of_group(input_, pass.input_gradient, group)});
    }
  }
  void backward_weights(CpuStream& stream, const TiledBackwardWeights& pass) const override {
    for (std::int64_t group = 0; group < groups_; ++group) {
      first_->backward_weights(
          stream, {of_group(input_, pass.input, group), of_group(output_, pass.output_gradient, group), nullptr,
                   pass.window_gradients + group * windows_, of_group(pass.bias_gradient, group)});
    }
  }

 private:
  static const void* of_group(const TileSide& side, const void* values, std::int64_t group) {
    return static_cast<const T*>(values) + channel_offset(side, group * side.channels);
  }
  static void* of_group(const TileSide& side, void* values, std::int64_t group) {
    return static_cast<T*>(values) + channel_offset(side, group * side.channels);
  }
  template <class Bias>
  Bias* of_group(Bias* bias, std::int64_t group) const {
    return bias == nullptr ? nullptr : bias + group * output_.channels;
  }

  std::shared_ptr<const TiledConvolution> first_;
  std::int64_t groups_;
  TileSide input_;
  TileSide output_;
  std::int64_t windows_;  // of a group
};

// Whether each group has full blocks of channels, and at least a panel.
bool has_wide_groups(const TiledShape& shape) {
  const auto suits = [&](const Layout& layout) {
    const std::int64_t channels = layout.shape()[1] / shape.groups;
    return channels % kBlockChannels == 0 && channels >= 2 * kMostLanes;
  };
  return suits(shape.input) && suits(shape.output);
}

template <class T>
std::shared_ptr<const TiledConvolution> make_in_groups(const TiledShape& shape) {
  if (!has_wide_groups(shape)) return make_grouped<T>(shape);
  auto first = make_tiles<T>(shape);
  if (first == nullptr) first = make_matrix<T>(shape);
  return std::make_shared<const GroupByGroup<T>>(shape, std::move(first));
}

template <class T>
TiledPasses choose(const TiledShape& shape) {
  if (shape.groups > 1) {
    auto one = make_in_groups<T>(shape);
    return {one, one, one};
  }
  if (auto few = make_few_channel<T>(shape)) {
    auto others = has_blocks_of_16(shape.input) ? make_matrix<T>(shape) : nullptr;
    return {few, std::move(others), few, true};
  }
  auto one = make_patched<T>(shape);
  if (one == nullptr) one = make_tiles<T>(shape);
  if (one == nullptr) one = make_matrix<T>(shape);
  return {one, one, one};
}

}  // namespace

TiledPasses choose_tiled_passes(const TiledShape& shape) {
  return shape.input.is_bf16() ? choose<Bf16>(shape) : choose<float>(shape);
}

}  // namespace tutti::cpu
