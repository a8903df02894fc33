// Convolutions as matrix products. In the forward pass, a product's rows are the output's pixels, its steps the values
// under their windows, one place of the window after the other, and its lanes the output's channels. The input gradient
// is the same over the output's gradients, for each remainder of the stride with the places of the window that have it.

#include "backend/cpu/tiles/matrix_weight_gradient.hpp"

namespace tutti::cpu {
namespace {

constexpr std::int64_t kSlabRows = 84;       // a multiple of the products' most rows
constexpr std::int64_t kBlockFloats = 4096;  // of a panel of weights: what stays in the first cache

template <class T>
class Matrix final : public TiledConvolution {
 public:
  explicit Matrix(const MatrixShape& shape);

  void forward(CpuStream& stream, const TiledForward& pass) const override;
  void backward_data(CpuStream& stream, const TiledBackwardData& pass) const override;
  void backward_weights(CpuStream& stream, const TiledBackwardWeights& pass) const override {
    weight_gradient_.run(stream, pass);
  }

 private:
  // A matrix product of `from` and packed weights.
  struct Convolution {
    const TileSide& from;
    const T* values;
    const TileSide& to;
    void* results;
    bool f32_results;
    const std::vector<Phase>& phases;
    std::int64_t steps;  // of all phases
    const float* bias;
    bool relu;
  };
  struct Item {
    const Phase* phase;
    std::int64_t first, count;  // rows
    std::int64_t panel, panels;
  };
  std::int64_t words(std::int64_t numbers) const { return ceil_div(numbers, kernels_.pack); }
  std::int64_t block_steps() const { return kBlockFloats / panel_ * kernels_.pack; }
  std::int64_t a_stride() const { return kBlockFloats / panel_ + 16; }

  void pack_outputs(const float* windows, std::int64_t panel, float* to) const;
  void pack_inputs(const float* windows, std::int64_t panel, float* to) const;
  template <class Pack>
  void convolve(CpuStream& stream, const Convolution& what, const Pack& pack) const;
  std::vector<Item> items_of(const Convolution& what, std::int64_t panels, int workers) const;
  void compute(const Convolution& what, const Item& item, const float* weights, float* own) const;
  template <class Word>
  void gather(const Convolution& what, const Item& item, std::int64_t step, std::int64_t steps, float* to) const;
  void deliver(const Convolution& what, const Item& item, std::int64_t panel, const float* sums,
               const std::int64_t* places) const;

  const TileKernels<T>& kernels_ = product_kernels<T>();
  MatrixShape shape_;
  std::int64_t panel_ = 2 * kernels_.lanes;
  std::vector<Phase> forward_;
  std::vector<Phase> gradient_;
  std::vector<std::int64_t> forward_places_;   // of a value in canonical order, in a panel of weights
  std::vector<std::int64_t> gradient_places_;  // of a place of the window
  std::int64_t gradient_steps_ = 0;
  MatrixWeightGradient<T> weight_gradient_;
};

template <class T>
Matrix<T>::Matrix(const MatrixShape& shape)
    : shape_(shape), forward_({forward_phase(shape)}), gradient_(gradient_phases(shape)), weight_gradient_(shape) {
  const std::int64_t channels = shape_.input.channels;
  const std::int64_t places = shape_.window.places();
  forward_places_.resize(static_cast<std::size_t>(shape_.values()));
  for (std::int64_t i = 0; i < shape_.values(); ++i) {
    forward_places_[static_cast<std::size_t>(i)] = (i % places * channels + i / places) * panel_;
  }
  gradient_places_.resize(static_cast<std::size_t>(places));
  for (Phase& phase : gradient_) {
    phase.first_step = gradient_steps_;
    for (const Place& place : phase.places) {
      gradient_places_[static_cast<std::size_t>(place.index)] = gradient_steps_ * panel_;
      gradient_steps_ += shape_.output.channels;
    }
    gradient_steps_ += gradient_steps_ % kernels_.pack;
  }
}

template <class T>
void Matrix<T>::pack_outputs(const float* windows, std::int64_t panel, float* to) const {
  for (int half = 0; half < 2; ++half) {
    const std::int64_t lane = panel * panel_ + half * kernels_.lanes;
    const std::int64_t lanes = std::clamp<std::int64_t>(shape_.output.channels - lane, 0, kernels_.lanes);
    kernels_.transpose({windows + lane * shape_.values(), shape_.values(), lanes, shape_.values(),
                        forward_places_.data(), to + half * kernels_.lanes});
  }
  if (kernels_.rounds) kernels_.round({to, shape_.values()});
}

template <class T>
void Matrix<T>::pack_inputs(const float* windows, std::int64_t panel, float* to) const {
  const std::int64_t places = shape_.window.places();
  const std::int64_t channels = std::min(panel_, shape_.input.channels - panel * panel_);
  for (std::int64_t output = 0; output < shape_.output.channels; ++output) {
    const float* const from = windows + (output * shape_.input.channels + panel * panel_) * places;
    float* const step = to + output * panel_;
    if (places == 1) {
      std::copy_n(from, channels, step);
      std::fill(step + channels, step + panel_, 0.0f);
      continue;
    }
    for (int half = 0; half < 2; ++half) {
      const std::int64_t lane = half * kernels_.lanes;
      const std::int64_t lanes = std::clamp<std::int64_t>(channels - lane, 0, kernels_.lanes);
      kernels_.transpose({from + lane * places, places, lanes, places, gradient_places_.data(), step + lane});
    }
  }
  for (const Phase& phase : gradient_) {
    if (!kernels_.rounds) break;
    kernels_.round({to + phase.first_step * panel_, std::ssize(phase.places) * shape_.output.channels});
  }
}

template <class T>
std::vector<typename Matrix<T>::Item> Matrix<T>::items_of(const Convolution& what, std::int64_t panels,
                                                          int workers) const {
  std::int64_t slabs = 0;
  for (const Phase& phase : what.phases) slabs += ceil_div(shape_.images * phase.rows * phase.columns, kSlabRows);
  // With few rows, the workers divide the panels.
  const std::int64_t groups = workers == 1 ? 1 : std::clamp<std::int64_t>(ceil_div(4 * workers, slabs), 1, panels);
  std::vector<Item> items;
  for (const Phase& phase : what.phases) {
    const std::int64_t rows = shape_.images * phase.rows * phase.columns;
    for (std::int64_t first = 0; first < rows; first += kSlabRows) {
      for (std::int64_t group = 0; group < groups; ++group) {
        const std::int64_t panel = panels * group / groups;
        items.push_back(
            {&phase, first, std::min(kSlabRows, rows - first), panel, panels * (group + 1) / groups - panel});
      }
    }
  }
  return items;
}

// pack(panel, to) writes the weights of a panel, [step][lane].
template <class T>
template <class Pack>
void Matrix<T>::convolve(CpuStream& stream, const Convolution& what, const Pack& pack) const {
  const std::int64_t panels = ceil_div(what.to.channels, panel_);
  const std::int64_t of_panel = (what.steps + what.steps % kernels_.pack) * panel_ + 16;
  const std::int64_t own = kSlabRows * (a_stride() + panels * panel_);
  float* const weights = stream.scratch(panels * of_panel + stream.workers() * own);
  parallel_for(stream, panels, [&](int, std::int64_t panel) { pack(panel, weights + panel * of_panel); });
  const std::vector<Item> items = items_of(what, panels, stream.workers());
  parallel_for(stream, std::ssize(items), [&](int worker, std::int64_t index) {
    compute(what, items[static_cast<std::size_t>(index)], weights, weights + panels * of_panel + worker * own);
  });
}

template <class T>
void Matrix<T>::compute(const Convolution& what, const Item& item, const float* weights, float* own) const {
  const Phase& phase = *item.phase;
  const std::int64_t of_panel = (what.steps + what.steps % kernels_.pack) * panel_ + 16;
  const std::int64_t steps = std::ssize(phase.places) * what.from.channels;
  float* const sums = own + kSlabRows * a_stride();
  std::int64_t places[kSlabRows];
  for (std::int64_t i = 0; i < item.count; ++i) {
    const std::int64_t row = item.first + i;
    const std::int64_t within = row % (phase.rows * phase.columns);
    const std::int64_t y = phase.row + within / phase.columns * phase.apart;
    const std::int64_t x = phase.column + within % phase.columns * phase.apart;
    places[i] = row / (phase.rows * phase.columns) * what.to.image + y * what.to.row + x * what.to.column;
  }
  std::int64_t step = 0;
  do {
    const std::int64_t count = std::min(block_steps(), steps - step);
    if constexpr (std::is_same_v<T, Bf16>) {
      kernels_.pack == 2 ? gather<Bf16>(what, item, step, count, own) : gather<float>(what, item, step, count, own);
    } else {
      gather<float>(what, item, step, count, own);
    }
    for (std::int64_t i = 0; i < item.panels; ++i) {
      const std::int64_t panel = item.panel + i;
      float* const of_rows = sums + i * kSlabRows * panel_;
      const float* const b = weights + panel * of_panel + phase.first_step * panel_ + words(step) * panel_;
      multiply(kernels_, true, item.count, {own, a_stride(), b, panel_, words(count), of_rows, step > 0});
      if (step + count == steps) deliver(what, item, panel, of_rows, places);
    }
    step += count;
  } while (step < steps);
}

// Values outside the image count as 0.
template <class T>
template <class Word>
void Matrix<T>::gather(const Convolution& what, const Item& item, std::int64_t step, std::int64_t steps,
                       float* to) const {
  const Phase& phase = *item.phase;
  const std::int64_t channels = what.from.channels;
  for (std::int64_t i = 0; i < item.count; ++i) {
    const std::int64_t row = item.first + i;
    const std::int64_t within = row % (phase.rows * phase.columns);
    const std::int64_t y = within / phase.columns * phase.scale;
    const std::int64_t x = within % phase.columns * phase.scale;
    const T* const image = what.values + row / (phase.rows * phase.columns) * what.from.image;
    Word* write = reinterpret_cast<Word*>(to + i * a_stride());
    for (std::int64_t at = step; at < step + steps;) {
      const Place& place = phase.places[static_cast<std::size_t>(at / channels)];
      const std::int64_t channel = at % channels;
      const std::int64_t count = std::min(channels - channel, step + steps - at);
      if (is_within(y + place.row, what.from.rows) && is_within(x + place.column, what.from.columns)) {
        const T* const pixel = image + (y + place.row) * what.from.row + (x + place.column) * what.from.column;
        for_each_run(what.from, channel, count, [&](std::int64_t first, std::int64_t run) {
          copy_run(pixel + channel_offset(what.from, first), write + first - channel, run);
        });
      } else {
        std::memset(write, 0, static_cast<std::size_t>(count) * sizeof(Word));
      }
      write += count;
      at += count;
    }
    if (steps % kernels_.pack != 0) std::memset(write, 0, sizeof(Word));
  }
}

template <class T>
void Matrix<T>::deliver(const Convolution& what, const Item& item, std::int64_t panel, const float* sums,
                        const std::int64_t* places) const {
  const std::int64_t channel = panel * panel_;
  const float* const bias = what.bias == nullptr ? nullptr : what.bias + channel;
  const auto pass_to = [&]<class To>(To* results) {
    return DeliverPass<To>{sums, item.count, places, image_of(what.to, results), channel, what.to.channels - channel,
                           bias, what.relu};
  };
  if (what.f32_results) {
    kernels_.deliver_f32(pass_to(static_cast<float*>(what.results)));
  } else {
    kernels_.deliver(pass_to(static_cast<T*>(what.results)));
  }
}

template <class T>
void Matrix<T>::forward(CpuStream& stream, const TiledForward& pass) const {
  convolve(stream,
           {shape_.input, static_cast<const T*>(pass.input), shape_.output, pass.output, shape_.f32_output, forward_,
            shape_.values(), pass.bias, pass.relu},
           [&](std::int64_t panel, float* to) { pack_outputs(pass.windows, panel, to); });
}

template <class T>
void Matrix<T>::backward_data(CpuStream& stream, const TiledBackwardData& pass) const {
  convolve(stream,
           {shape_.output, static_cast<const T*>(pass.output_gradient), shape_.input, pass.input_gradient, false,
            gradient_, gradient_steps_, nullptr, false},
           [&](std::int64_t panel, float* to) { pack_inputs(pass.windows, panel, to); });
}

}  // namespace

template <class T>
std::shared_ptr<const TiledConvolution> make_matrix(const TiledShape& shape) {
  const MatrixWindow window{shape.window, shape.window, shape.stride, shape.padding, shape.dilation};
  return std::make_shared<const Matrix<T>>(MatrixShape{
      side_of(shape.input, shape.groups), side_of(shape.output, shape.groups), shape.input.shape()[0], window, false});
}
template std::shared_ptr<const TiledConvolution> make_matrix<float>(const TiledShape&);
template std::shared_ptr<const TiledConvolution> make_matrix<Bf16>(const TiledShape&);

std::shared_ptr<const TiledConvolution> make_matrix_linear(const Layout& input, std::int64_t units) {
  const std::int64_t images = input.shape()[0];
  TileSide from = side_of(input);
  if (input.is_plain()) {  // in the order of the weights
    const std::int64_t values = from.channels * from.rows * from.columns;
    from = {values, kBlockChannels, values, values, 1, 1, values};
  }
  const TileSide to{units, kBlockChannels, units, units, 1, 1, units};
  // The only window covers the image. With a stride of its size, each pixel's gradient is made of the one place there.
  const std::int64_t stride = std::max(from.rows, from.columns);
  const MatrixShape shape{from, to, images, {from.rows, from.columns, stride, 0, 1}, true};
  if (input.is_bf16()) return std::make_shared<const Matrix<Bf16>>(shape);
  return std::make_shared<const Matrix<float>>(shape);
}

}  // namespace tutti::cpu
