#include "backend/cpu/tiles/lane_kernels.hpp"
#include "backend/cpu/tiles/tile_work.hpp"
#include "backend/cpu/tiles/tiled_convolution.hpp"

#include <array>
#include <vector>

namespace tutti::cpu {
namespace {

constexpr std::int64_t kSlabTiles = 28;          // processed at a time, so that their points stay in a core's cache
constexpr std::int64_t kGradientSlabTiles = 36;  // the same, where each slab's products are added to all sums

struct Images {
  std::int64_t first, count;
};

template <class T>
class Patched final : public TiledConvolution {
 public:
  explicit Patched(const TiledShape& shape)
      : input_(shape.input, panel_),
        output_(shape.output, panel_),
        images_(shape.input.shape()[0]),
        grid_{ceil_div(output_.rows, kPatchTile), ceil_div(output_.columns, kPatchTile), shape.padding} {}

  void forward(CpuStream& stream, const TiledForward& pass) const override;
  void backward_data(CpuStream& stream, const TiledBackwardData& pass) const override;
  void backward_weights(CpuStream& stream, const TiledBackwardWeights& pass) const override;

 private:
  std::int64_t tiles() const { return grid_.down * grid_.across; }
  PatchGrid output_grid() const { return {grid_.down, grid_.across, 0}; }
  std::int64_t images_of(std::int64_t slab_tiles) const {
    return std::clamp<std::int64_t>(slab_tiles / tiles(), 1, images_);
  }

  struct Filters {
    const float* windows;
    std::int64_t next_step, next_lane;  // in windows
    std::int64_t steps, lanes;
  };
  PointMatrices panel_of(const Filters& what) const { return {kPatchPoints, what.steps, panel_}; }
  void prepare(CpuStream& stream, const Filters& what, float* to) const;
  // For every slab, transforms its images, multiplies their points by the filters of each panel, and delivers the
  // products.
  template <class Transform, class Deliver>
  void convolve(CpuStream& stream, const Filters& filters, const Transform& transform, const Deliver& deliver) const;
  void transform(const Images& images, const T* values, const PointMatrices& matrices, float* to) const;
  void transform_gradients(const Images& images, const T* values, const PointMatrices& matrices, float* to) const;
  void collect(std::int64_t output, const float* sums, const PointMatrices& matrices, float* window_gradients) const;

  const PatchKernels<T>& kernels_ = lane_kernels<T>().patches;
  const TileKernels<float>& products_ = wide_tiles<float>();
  std::int64_t lanes_ = kernels_.lanes;
  std::int64_t panel_ = 2 * lanes_;
  LaneSide input_;
  LaneSide output_;
  std::int64_t images_;
  PatchGrid grid_;
};

template <class T>
void Patched<T>::prepare(CpuStream& stream, const Filters& what, float* to) const {
  const PointMatrices panel = panel_of(what);
  parallel_for(stream, ceil_div(what.lanes, lanes_) * what.steps, [&](int, std::int64_t item) {
    const std::int64_t step = item % what.steps;
    const std::int64_t lane = item / what.steps * lanes_;
    std::array<float, kPatchTaps * kMostLanes> taps{};
    for (std::int64_t i = 0; i < std::min(lanes_, what.lanes - lane); ++i) {
      const float* const window = what.windows + step * what.next_step + (lane + i) * what.next_lane;
      for (std::int64_t tap = 0; tap < kPatchTaps; ++tap)
        taps[static_cast<std::size_t>(tap * lanes_ + i)] = window[tap];
    }
    float* const points = to + lane / panel_ * panel.floats() + step * panel_ + lane % panel_;
    kernels_.windows({taps.data(), points, panel.stride()});
  });
}

template <class T>
template <class Transform, class Deliver>
void Patched<T>::convolve(CpuStream& stream, const Filters& filters, const Transform& transform,
                          const Deliver& deliver) const {
  const PointMatrices panel = panel_of(filters);
  const std::int64_t panels = ceil_div(filters.lanes, panel_);
  const std::int64_t each = images_of(kSlabTiles);
  const PointMatrices points{kPatchPoints, each * tiles(), ceil_div(filters.steps, panel_) * panel_};
  const PointMatrices sums{kPatchPoints, each * tiles(), panel_};
  const std::int64_t image_sums = input_.rows * input_.columns * lanes_;
  const std::int64_t own = points.floats() + sums.floats() + image_sums;
  float* const prepared = stream.scratch(panels * panel.floats() + stream.workers() * own);
  prepare(stream, filters, prepared);
  parallel_for(stream, ceil_div(images_, each), [&](int worker, std::int64_t index) {
    const Images images{index * each, std::min(each, images_ - index * each)};
    float* const a = prepared + panels * panel.floats() + worker * own;
    float* const products = a + points.floats();
    transform(images, points, a);
    for (std::int64_t i = 0; i < panels; ++i) {
      for (std::int64_t point = 0; point < kPatchPoints; ++point) {
        multiply(products_, true, images.count * tiles(),
                 {a + point * points.stride(), points.columns, prepared + i * panel.floats() + point * panel.stride(),
                  panel_, filters.steps, products + point * sums.stride(), false});
      }
      for (std::int64_t image = 0; image < images.count; ++image) {
        deliver(images.first + image, i, products + image * tiles() * panel_, sums.stride(), products + sums.floats());
      }
    }
  });
}

template <class T>
void Patched<T>::transform(const Images& images, const T* values, const PointMatrices& matrices, float* to) const {
  for (std::int64_t i = 0; i < images.count; ++i) {
    kernels_.inputs({image_of(input_, values, images.first + i), grid_, 0, input_.blocks(),
                     to + i * tiles() * matrices.columns, matrices.stride()});
  }
}

template <class T>
void Patched<T>::transform_gradients(const Images& images, const T* values, const PointMatrices& matrices,
                                     float* to) const {
  for (std::int64_t i = 0; i < images.count; ++i) {
    kernels_.gradients({image_of(output_, values, images.first + i), output_grid(), 0, output_.blocks(),
                        to + i * tiles() * matrices.columns, matrices.stride()});
  }
}

template <class T>
void Patched<T>::forward(CpuStream& stream, const TiledForward& pass) const {
  std::vector<float> bias(static_cast<std::size_t>(output_.lanes()));
  if (pass.bias != nullptr) std::copy_n(pass.bias, output_.channels, bias.begin());
  convolve(
      stream, {pass.windows, kPatchTaps, input_.channels * kPatchTaps, input_.channels, output_.channels},
      [&](const Images& images, const PointMatrices& matrices, float* points) {
        transform(images, static_cast<const T*>(pass.input), matrices, points);
      },
      [&](std::int64_t image, std::int64_t panel, float* points, std::int64_t stride, float*) {
        kernels_.outputs(
            {{image_of(output_, static_cast<T*>(pass.output), image), output_grid(), panel * 2, 2, points, stride},
             bias.data() + panel * panel_,
             pass.relu});
      });
}

template <class T>
void Patched<T>::backward_data(CpuStream& stream, const TiledBackwardData& pass) const {
  convolve(
      stream, {pass.windows, input_.channels * kPatchTaps, kPatchTaps, output_.channels, input_.channels},
      [&](const Images& images, const PointMatrices& matrices, float* points) {
        transform_gradients(images, static_cast<const T*>(pass.output_gradient), matrices, points);
      },
      [&](std::int64_t image, std::int64_t panel, float* points, std::int64_t stride, float* image_sums) {
        kernels_.input_gradients(
            {{image_of(input_, static_cast<T*>(pass.input_gradient), image), grid_, panel * 2, 2, points, stride},
             image_sums});
      });
}

template <class T>
void Patched<T>::backward_weights(CpuStream& stream, const TiledBackwardWeights& pass) const {
  const std::int64_t each = images_of(kGradientSlabTiles);
  const PointMatrices inputs{kPatchPoints, each * tiles(), input_.lanes()};
  const PointMatrices gradients{kPatchPoints, each * tiles(), output_.lanes()};
  const PointMatrices sums{kPatchPoints, output_.channels, panel_};
  float* const a = stream.scratch(inputs.floats() + gradients.floats() + input_.panels() * sums.floats());
  float* const b = a + gradients.floats();
  float* const products = b + inputs.floats();
  for (std::int64_t first = 0; first < images_; first += each) {
    const std::int64_t count = std::min(each, images_ - first);
    parallel_for(stream, count, [&](int, std::int64_t i) {
      const Images one{first + i, 1};
      transform(one, static_cast<const T*>(pass.input), inputs, b + i * tiles() * inputs.columns);
      transform_gradients(one, static_cast<const T*>(pass.output_gradient), gradients,
                          a + i * tiles() * gradients.columns);
    });
    parallel_for(stream, input_.panels() * kPatchPoints, [&](int, std::int64_t item) {
      const std::int64_t panel = item / kPatchPoints;
      const std::int64_t point = item % kPatchPoints;
      multiply(products_, false, output_.channels,
               {a + point * gradients.stride(), gradients.columns, b + point * inputs.stride() + panel * panel_,
                inputs.columns, count * tiles(), products + panel * sums.floats() + point * sums.stride(), first > 0});
    });
  }
  parallel_for(stream, output_.channels,
               [&](int, std::int64_t output) { collect(output, products, sums, pass.window_gradients); });
  if (pass.bias_gradient != nullptr) {
    sum_bias(stream, output_, images_, static_cast<const T*>(pass.output_gradient), pass.bias_gradient);
  }
}

template <class T>
void Patched<T>::collect(std::int64_t output, const float* sums, const PointMatrices& matrices,
                         float* window_gradients) const {
  std::array<float, kPatchTaps * kMostLanes> taps;
  for (std::int64_t input = 0; input < input_.channels; input += lanes_) {
    // The points are not modified.
    float* const points =
        const_cast<float*>(sums) + input / panel_ * matrices.floats() + output * panel_ + input % panel_;
    kernels_.window_gradients({taps.data(), points, matrices.stride()});
    for (std::int64_t i = 0; i < std::min(lanes_, input_.channels - input); ++i) {
      float* const window = window_gradients + (output * input_.channels + input + i) * kPatchTaps;
      for (std::int64_t tap = 0; tap < kPatchTaps; ++tap)
        window[tap] = taps[static_cast<std::size_t>(tap * lanes_ + i)];
    }
  }
}

// Compares the multiplications of patches, including padding lanes, with those of a direct convolution. The answer must
// not depend on the width of registers.
bool is_profitable(const TiledShape& shape) {
  constexpr std::int64_t kWidestPanel = 2 * kMostLanes;
  const LaneSide input(shape.input, kWidestPanel);
  const LaneSide output(shape.output, kWidestPanel);
  const std::int64_t tiles = ceil_div(output.rows, kPatchTile) * ceil_div(output.columns, kPatchTile);
  const std::int64_t channels = input.channels * output.channels;
  const std::int64_t padded = std::max(input.lanes() * output.channels, output.lanes() * input.channels);
  return 2 * tiles * kPatchPoints * padded <= output.rows * output.columns * kPatchTaps * channels;
}

}  // namespace

template <class T>
std::shared_ptr<const TiledConvolution> make_patched(const TiledShape& shape) {
  const bool fits = shape.window == kPatchWindow && shape.stride == 1 && shape.dilation == 1;
  if (!fits || !is_profitable(shape)) return nullptr;
  return std::make_shared<const Patched<T>>(shape);
}
template std::shared_ptr<const TiledConvolution> make_patched<float>(const TiledShape&);
template std::shared_ptr<const TiledConvolution> make_patched<Bf16>(const TiledShape&);

}  // namespace tutti::cpu
