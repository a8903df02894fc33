#include "backend/cuda/layers.hpp"
#include "backend/cuda/runtime.hpp"
#include "floats.cuh"
#include "grids.cuh"

#include <cmath>

namespace tutti::cuda {
namespace {

struct PoolExtents {
  std::int64_t samples = 0;
  int packs = 0;  // of a pixel
  int height = 0;
  int width = 0;
  int output_height = 0;
  int output_width = 0;
  int kernel = 0;
  int stride = 0;
  int padding = 0;

  // Whether a byte can number the positions in a window.
  bool is_narrow() const { return kernel <= 16; }
};

struct Pool {
  PoolExtents extents;
  const void* input = nullptr;
  void* output = nullptr;
  // The position in its window, counted row by row, of the greatest value of each window and channel, in a byte if
  // narrow, else in four. Null: not wanted.
  void* places = nullptr;
};

struct PoolGradient {
  PoolExtents extents;
  GradientSum gradients;
  const void* places = nullptr;
  void* input_gradient = nullptr;
};

struct Range {
  int begin;
  int end;
};

// The rows or columns of a window that are inside the image.
__device__ inline Range inside(int first, int kernel, int extent) {
  return {first < 0 ? 0 : first, first + kernel < extent ? first + kernel : extent};
}

// The windows that cover a row or column of the image.
__device__ inline Range covering(int at, const PoolExtents& extents, int windows) {
  const int padded = at + extents.padding;
  const int past = padded - extents.kernel + 1;
  const int last = padded / extents.stride + 1;
  return {past <= 0 ? 0 : (past + extents.stride - 1) / extents.stride, last < windows ? last : windows};
}

struct Window {
  int top;
  int left;
  Range rows;
  Range columns;
};

__device__ inline Window window_of(const PoolExtents& extents, int row, int column) {
  const int top = row * extents.stride - extents.padding;
  const int left = column * extents.stride - extents.padding;
  return {top, left, inside(top, extents.kernel, extents.height), inside(left, extents.kernel, extents.width)};
}

// A pack in a row of the output: its window, and where the sample's pixels begin.
struct OutputPlace {
  int pack;
  std::int64_t first_row;  // of the sample, of all input rows
  Window window;
};

__device__ inline OutputPlace output_place(const PoolExtents& extents, int run, int at) {
  const std::int64_t sample = run / extents.output_height;
  return {at % extents.packs, sample * extents.height,
          window_of(extents, run % extents.output_height, at / extents.packs)};
}

template <class Index, int kSize>
struct alignas(sizeof(Index) * kSize < 16 ? sizeof(Index) * kSize : 16) Places {
  Index values[kSize];
};

// Of equal values the first is the greatest; NaN is greater than all numbers.
template <class T, class Index>
__global__ void max_pool(Pool work, Runs runs) {
  constexpr int kSize = Floats<T>::kSize;
  const PoolExtents& extents = work.extents;
  for_each_pack(runs, [&](int run, int at, std::int64_t i) {
    const OutputPlace place = output_place(extents, run, at);
    const Window& window = place.window;
    Floats<T> best;
    Places<Index, kSize> places;
    const int first = (window.rows.begin - window.top) * extents.kernel + window.columns.begin - window.left;
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      best.values[k] = -INFINITY;
      places.values[k] = static_cast<Index>(first);
    }
    for (int row = window.rows.begin; row < window.rows.end; ++row) {
      for (int column = window.columns.begin; column < window.columns.end; ++column) {
        const auto x =
            load<T>(work.input, ((place.first_row + row) * extents.width + column) * extents.packs + place.pack);
        const auto here = static_cast<Index>((row - window.top) * extents.kernel + column - window.left);
#pragma unroll
        for (int k = 0; k < kSize; ++k) {
          const bool greater = x.values[k] > best.values[k] || x.values[k] != x.values[k];
          best.values[k] = greater ? x.values[k] : best.values[k];
          places.values[k] = greater ? here : places.values[k];
        }
      }
    }
    store(work.output, i, best);
    if (work.places != nullptr) static_cast<Places<Index, kSize>*>(work.places)[i] = places;
  });
}

template <class T>
__global__ void average_pool(Pool work, Runs runs) {
  constexpr int kSize = Floats<T>::kSize;
  const PoolExtents& extents = work.extents;
  const auto area = static_cast<float>(extents.kernel * extents.kernel);
  for_each_pack(runs, [&](int run, int at, std::int64_t i) {
    const OutputPlace place = output_place(extents, run, at);
    const Window& window = place.window;
    Floats<T> sum{};
    for (int row = window.rows.begin; row < window.rows.end; ++row) {
      for (int column = window.columns.begin; column < window.columns.end; ++column) {
        add(sum, load<T>(work.input, ((place.first_row + row) * extents.width + column) * extents.packs + place.pack));
      }
    }
#pragma unroll
    for (int k = 0; k < kSize; ++k) sum.values[k] /= area;
    store(work.output, i, sum);
  });
}

// Gradients are gathered: each pixel of the input reads those of the windows that cover it. Calls visit(pack of the
// output, position of the pixel in the window) for every window over a pack of the input.
template <class Visit>
__device__ inline void for_each_window(const PoolExtents& extents, int run, int at, Visit visit) {
  const int sample = run / extents.height;
  const int row = run % extents.height;
  const int pack = at % extents.packs;
  const int column = at / extents.packs;
  const Range rows = covering(row, extents, extents.output_height);
  const Range columns = covering(column, extents, extents.output_width);
  for (int y = rows.begin; y < rows.end; ++y) {
    const std::int64_t output_row = static_cast<std::int64_t>(sample) * extents.output_height + y;
    const int row_of_window = row + extents.padding - y * extents.stride;
    for (int x = columns.begin; x < columns.end; ++x) {
      const int column_of_window = column + extents.padding - x * extents.stride;
      visit((output_row * extents.output_width + x) * extents.packs + pack,
            row_of_window * extents.kernel + column_of_window);
    }
  }
}

template <class T, class Index>
__global__ void max_pool_gradient(PoolGradient work, Runs runs) {
  constexpr int kSize = Floats<T>::kSize;
  for_each_pack(runs, [&](int run, int at, std::int64_t i) {
    Floats<T> sum{};
    for_each_window(work.extents, run, at, [&](std::int64_t output, int here) {
      const auto places = static_cast<const Places<Index, kSize>*>(work.places)[output];
      const auto gradient = load<T>(work.gradients, output);
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        sum.values[k] += places.values[k] == static_cast<Index>(here) ? gradient.values[k] : 0.0f;
      }
    });
    store(work.input_gradient, i, sum);
  });
}

template <class T>
__global__ void average_pool_gradient(PoolGradient work, Runs runs) {
  const auto area = static_cast<float>(work.extents.kernel * work.extents.kernel);
  for_each_pack(runs, [&](int run, int at, std::int64_t i) {
    Floats<T> sum{};
    for_each_window(work.extents, run, at,
                    [&](std::int64_t output, int) { add(sum, load<T>(work.gradients, output)); });
#pragma unroll
    for (int k = 0; k < Floats<T>::kSize; ++k) sum.values[k] /= area;
    store(work.input_gradient, i, sum);
  });
}

Runs rows_of_input(const PoolExtents& extents) {
  return {extents.samples * extents.height, extents.width * extents.packs};
}
Runs rows_of_output(const PoolExtents& extents) {
  return {extents.samples * extents.output_height, extents.output_width * extents.packs};
}

PoolExtents extents_of(const Pool2dSpec& spec, const ActivationSpec& input, const ActivationSpec& output) {
  const ImageLayout from = layout_of(input);
  const ImageLayout to = layout_of(output);
  return {.samples = from.samples,
          .packs = static_cast<int>(packs_of(from, format_of(input).type())),
          .height = static_cast<int>(from.height),
          .width = static_cast<int>(from.width),
          .output_height = static_cast<int>(to.height),
          .output_width = static_cast<int>(to.width),
          .kernel = static_cast<int>(spec.kernel),
          .stride = static_cast<int>(spec.stride),
          .padding = static_cast<int>(spec.padding)};
}

class Pool2dLayer final : public CudaLayer {
 public:
  Pool2dLayer(const Processor& processor, const Pool2dSpec& spec, const LayerRequest& request)
      : CudaLayer(request, output_of(spec, request.input), backward_reads(spec)),
        pooling_(spec.pooling),
        extents_(extents_of(spec, request.input, output_)) {
    if (pooling_ != Pooling::max || mode_ != LayerMode::training || !request.wants_input_gradient) return;
    const std::size_t bytes_each = extents_.is_narrow() ? sizeof(std::uint8_t) : sizeof(std::uint32_t);
    places_ = allocate_cuda(processor.device, output_.bytes / bytes_of(type_) * bytes_each);
  }

  void forward(Stream& stream, const LayerForward& pass) override {
    const Runs runs = rows_of_output(extents_);
    launch(is_bf16() ? pool_of<Bf16>() : pool_of<float>(), runs.grid(), native(as_cuda_stream(stream)),
           Pool{extents_, pass.input, pass.output, places_.data()}, runs);
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(pass);
    if (pass.input_gradient == nullptr) return;
    CudaStream& ours = as_cuda_stream(stream);
    const PoolGradient work{extents_, reduce_to_three(ours, pass, output_), places_.data(), pass.input_gradient};
    const Runs runs = rows_of_input(extents_);
    launch(is_bf16() ? pool_gradient_of<Bf16>() : pool_gradient_of<float>(), runs.grid(), native(ours), work, runs);
  }

 private:
  using Kernel = void (*)(Pool, Runs);
  using GradientKernel = void (*)(PoolGradient, Runs);

  template <class T>
  Kernel pool_of() const {
    if (pooling_ == Pooling::average) return average_pool<T>;
    return extents_.is_narrow() ? max_pool<T, std::uint8_t> : max_pool<T, std::uint32_t>;
  }
  template <class T>
  GradientKernel pool_gradient_of() const {
    if (pooling_ == Pooling::average) return average_pool_gradient<T>;
    return extents_.is_narrow() ? max_pool_gradient<T, std::uint8_t> : max_pool_gradient<T, std::uint32_t>;
  }

  Pooling pooling_;
  PoolExtents extents_;
  Buffer places_;  // of the greatest of the last input; empty where they are not needed
};

struct GlobalAverage {
  std::int64_t pixels;  // of each sample
  const void* input;
  void* output;
};

struct GlobalAverageGradient {
  std::int64_t pixels;
  GradientSum gradients;
  void* input_gradient;
};

template <class T>
__device__ inline void divide(Floats<T>& values, int by) {
#pragma unroll
  for (int k = 0; k < Floats<T>::kSize; ++k) values.values[k] /= static_cast<float>(by);
}

template <class T>
__global__ void global_average(GlobalAverage work, Runs outputs) {
  const auto pixels = static_cast<int>(work.pixels);
  for_each_pack(outputs, [&](int sample, int pack, std::int64_t i) {
    const std::int64_t first = static_cast<std::int64_t>(sample) * pixels * outputs.packs + pack;
    Floats<T> sum{};
#pragma unroll 4
    for (int pixel = 0; pixel < pixels; ++pixel) {
      add(sum, load<T>(work.input, first + static_cast<std::int64_t>(pixel) * outputs.packs));
    }
    divide(sum, pixels);
    store(work.output, i, sum);
  });
}

template <class T>
__global__ void global_average_gradient(GlobalAverageGradient work, Runs inputs) {
  const auto pixels = static_cast<int>(work.pixels);
  const int packs = inputs.packs / pixels;
  for_each_pack(inputs, [&](int sample, int at, std::int64_t i) {
    auto gradient = load<T>(work.gradients, static_cast<std::int64_t>(sample) * packs + at % packs);
    divide(gradient, pixels);
    store(work.input_gradient, i, gradient);
  });
}

class GlobalAveragePoolLayer final : public CudaLayer {
 public:
  GlobalAveragePoolLayer(const GlobalAveragePoolSpec& spec, const LayerRequest& request)
      : CudaLayer(request, output_of(spec, request.input), backward_reads(spec)), layout_(layout_of(request.input)) {}

  void forward(Stream& stream, const LayerForward& pass) override {
    const Runs outputs{layout_.samples, static_cast<int>(packs_of(layout_, type_))};
    launch(is_bf16() ? global_average<Bf16> : global_average<float>, outputs.grid(), native(as_cuda_stream(stream)),
           GlobalAverage{layout_.pixels(), pass.input, pass.output}, outputs);
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    require_training(pass);
    if (pass.input_gradient == nullptr) return;
    CudaStream& ours = as_cuda_stream(stream);
    const Runs inputs{layout_.samples, static_cast<int>(layout_.pixels() * packs_of(layout_, type_))};
    launch(is_bf16() ? global_average_gradient<Bf16> : global_average_gradient<float>, inputs.grid(), native(ours),
           GlobalAverageGradient{layout_.pixels(), reduce_to_three(ours, pass, output_), pass.input_gradient}, inputs);
  }

 private:
  ImageLayout layout_;
};

}  // namespace

std::unique_ptr<Layer> make(const Processor& processor, const Pool2dSpec& spec, const LayerRequest& request) {
  return std::make_unique<Pool2dLayer>(processor, spec, request);
}

std::unique_ptr<Layer> make(const Processor&, const GlobalAveragePoolSpec& spec, const LayerRequest& request) {
  return std::make_unique<GlobalAveragePoolLayer>(spec, request);
}

}  // namespace tutti::cuda
