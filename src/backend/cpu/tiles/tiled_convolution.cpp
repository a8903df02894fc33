#include "backend/cpu/tiles/tiled_convolution.hpp"

#include "backend/cpu/library.hpp"
#include "backend/cpu/tiles/tile_passes.hpp"
#include "backend/cpu/tiles/tile_work.hpp"

#include <algorithm>

namespace tutti::cpu {
namespace {

// Windows take as long to be brought to points as some tiles take for their products; and a tile that reaches far
// beyond the image spares nothing.
template <class T>
bool pays(const TiledShape& shape, const TileKernels<T>& kernels) {
  constexpr std::int64_t kLeastTiles = 4;
  const TileSide outputs = side_of(shape.output, kernels.lanes);
  const std::int64_t tiles =
      dims_of(shape.output)[0] * parts_of(outputs.rows, kernels.tile) * parts_of(outputs.columns, kernels.tile);
  const std::int64_t direct = dims_of(shape.output)[0] * outputs.rows * outputs.columns * kTaps;
  return tiles >= kLeastTiles * kernels.pack * kernels.pack && 5 * tiles * kernels.points <= 4 * direct;
}

bool fits(const TiledShape& shape, int lanes) {
  const auto suits = [&](const Desc& desc) {
    const ChannelLayout layout(desc);
    return layout.channels() % (2 * lanes) == 0 && (layout.period() == lanes || layout.blocks() == 1);
  };
  return shape.window == kWindow && shape.stride == 1 && shape.padding < kWindow && suits(shape.input) &&
         suits(shape.output);
}

template <class T>
class Tiled final : public TiledConvolution {
 public:
  Tiled(const TileKernels<T>& kernels, const TiledShape& shape)
      : kernels_(kernels),
        input_(side_of(shape.input, kernels.lanes)),
        output_(side_of(shape.output, kernels.lanes)),
        images_(dims_of(shape.input)[0]),
        padding_(shape.padding) {}

  void forward(CpuStream& stream, const TiledForward& pass) const override {
    convolve<T>(kernels_, stream,
                {input_, static_cast<const T*>(pass.input), output_, static_cast<T*>(pass.output), images_, padding_,
                 pass.windows, false, pass.bias, pass.relu});
  }
  void backward_data(CpuStream& stream, const TiledBackwardData& pass) const override {
    convolve<T>(kernels_, stream,
                {output_, static_cast<const T*>(pass.output_gradient), input_, static_cast<T*>(pass.input_gradient),
                 images_, kWindow - 1 - padding_, pass.windows, true, nullptr, false});
  }
  void backward_weights(CpuStream& stream, const TiledBackwardWeights& pass) const override {
    compare<T>(kernels_, stream,
               {input_, static_cast<const T*>(pass.input), output_, static_cast<const T*>(pass.output_gradient),
                images_, padding_, pass.window_gradients});
    if (pass.bias_gradient != nullptr)
      sum_bias(stream, static_cast<const T*>(pass.output_gradient), pass.bias_gradient);
  }

 private:
  void sum_bias(CpuStream& stream, const T* gradient, float* to) const {
    const auto work = [&](std::int64_t index, float* sums, float*) {
      TileImage<const T> image = image_of(output_, gradient + index * output_.image);
      for (std::int64_t lane = 0; lane < output_.channels; lane += kernels_.lanes, image.values += image.block) {
        kernels_.sum_channels({image, {output_.rows, output_.columns, 0, 0, 0}, sums + lane});
      }
    };
    std::ranges::copy(sum_images(stream, {images_, output_.channels, 0}, work), to);
  }

  const TileKernels<T>& kernels_;
  TileSide input_;
  TileSide output_;
  std::int64_t images_;
  std::int64_t padding_;
};

template <class T>
std::shared_ptr<const TiledConvolution> make(const TileKernels<T>& kernels, const TiledShape& shape) {
  if (!fits(shape, kernels.lanes) || !pays(shape, kernels)) return nullptr;
  return std::make_shared<const Tiled<T>>(kernels, shape);
}

TiledPasses all_passes(std::shared_ptr<const TiledConvolution> one) { return {one, one, one}; }

template <class T>
TiledPasses few_channels(const TiledShape& shape) {
  if (auto thin = make_thin<T>(shape)) return {thin, nullptr, thin, true};
  return all_passes(make_patched<T>(shape));
}

std::int64_t least_channels(const TiledShape& shape) {
  return std::min(dims_of(shape.input)[1], dims_of(shape.output)[1]);
}

// AMD's processors multiply bf16 at twice the speed of f32; others with the same instruction do not. Points of narrow
// tiles take longer to make, which few channels do not repay. Where there are matrix registers, oneDNN uses them well
// but for the gradients of windows with many channels.
TiledPasses choose_bf16(const TiledShape& shape) {
  constexpr std::int64_t kNarrowChannels = 64;
  constexpr std::int64_t kMatrixChannels = 256;
  if (!compiles_for(dnnl::cpu_isa::avx512_core)) return {};
  const TileKernels<Bf16>& wide = wide_tiles_avx512<Bf16>();
  if (compiles_for(dnnl::cpu_isa::avx512_core_amx)) {
    if (least_channels(shape) < kMatrixChannels) return {};
    return {.forward = nullptr, .backward_data = nullptr, .backward_weights = make(wide, shape)};
  }
  if (TiledPasses few = few_channels<Bf16>(shape); few.forward) return few;
  const bool narrow = compiles_for(dnnl::cpu_isa::avx512_core_bf16) && __builtin_cpu_is("amd") &&
                      least_channels(shape) >= kNarrowChannels;
  return all_passes(make(narrow ? narrow_tiles_avx512_bf16() : wide, shape));
}

}  // namespace

TiledPasses choose_tiled_passes(const TiledShape& shape) {
  if (is_bf16(shape.input)) return choose_bf16(shape);
  if (compiles_for(dnnl::cpu_isa::avx512_core)) {
    if (TiledPasses few = few_channels<float>(shape); few.forward) return few;
    return all_passes(make(wide_tiles_avx512<float>(), shape));
  }
  if (compiles_for(dnnl::cpu_isa::avx2)) return all_passes(make(wide_tiles_avx2<float>(), shape));
  return {};
}

}  // namespace tutti::cpu
