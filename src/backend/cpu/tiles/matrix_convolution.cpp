// Convolutions as matrix products. In the forward pass, a product's rows are the output's pixels, its steps the values
// under their windows, one place of the window after the other, and its lanes the output's channels. The input gradient
// is the same over the output's gradients, for each remainder of the stride with the places of the window that have it.

#include "backend/cpu/tiles/tile_work.hpp"
#include "backend/cpu/tiles/tiled_convolution.hpp"

#include <cstring>
#include <type_traits>
#include <vector>

namespace tutti::cpu {
namespace {

constexpr std::int64_t kSlabRows = 84;       // a multiple of the products' most rows
constexpr std::int64_t kBlockFloats = 4096;  // of a panel of weights: what stays in the first cache
constexpr std::int64_t kSlabPixels = 256;    // of a weight gradient; even, as steps may come in pairs

struct MatrixWindow {
  std::int64_t rows, columns, stride, padding, dilation;
  std::int64_t places() const { return rows * columns; }
};

struct MatrixShape {
  TileSide input, output;
  std::int64_t images;
  MatrixWindow window;
  bool f32_output;                                                          // of the forward pass
  std::int64_t values() const { return input.channels * window.places(); }  // under a window
};

// A place of the window, and the distance of what is read there from the first one read.
struct Place {
  std::int64_t index;
  std::int64_t row, column;
};

// One in `apart` pixels of the result along each axis, from (row, column) on: those that read the same places.
struct Phase {
  std::int64_t row, column, apart;
  std::int64_t rows, columns;
  std::int64_t scale;  // from pixel to pixel, in what is read
  std::vector<Place> places;
  std::int64_t first_step = 0;
};

// A place along one axis of the window.
struct Tap {
  std::int64_t index, distance;
};

// By the remainder of the stride that the pixels of the result have which read there.
std::vector<std::vector<Tap>> taps_by_remainder(std::int64_t taps, const MatrixWindow& window) {
  const std::int64_t stride = window.stride;
  std::vector<std::vector<Tap>> all(static_cast<std::size_t>(stride));
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    const std::int64_t first = tap * window.dilation - window.padding;
    const std::int64_t remainder = (first % stride + stride) % stride;
    all[static_cast<std::size_t>(remainder)].push_back({tap, (remainder - first) / stride});
  }
  return all;
}

// The phase of the forward pass.
Phase forward_phase(const MatrixShape& shape) {
  const MatrixWindow& window = shape.window;
  Phase phase{0, 0, 1, shape.output.rows, shape.output.columns, window.stride, {}};
  for (std::int64_t i = 0; i < window.places(); ++i) {
    phase.places.push_back({i, i / window.columns * window.dilation - window.padding,
                            i % window.columns * window.dilation - window.padding});
  }
  return phase;
}

// Those of the input gradient, one for each remainder of the stride.
std::vector<Phase> gradient_phases(const MatrixShape& shape) {
  const MatrixWindow& window = shape.window;
  const std::int64_t stride = window.stride;
  const auto rows = taps_by_remainder(window.rows, window);
  const auto columns = taps_by_remainder(window.columns, window);
  std::vector<Phase> phases;
  for (std::int64_t row = 0; row < stride; ++row) {
    for (std::int64_t column = 0; column < stride; ++column) {
      Phase phase{
          row, column, stride, ceil_div(shape.input.rows - row, stride), ceil_div(shape.input.columns - column, stride),
          1,   {}};
      for (const Tap& down : rows[static_cast<std::size_t>(row)]) {
        for (const Tap& across : columns[static_cast<std::size_t>(column)]) {
          phase.places.push_back({down.index * window.columns + across.index, down.distance, across.distance});
        }
      }
      phases.push_back(std::move(phase));
    }
  }
  return phases;
}

template <class To, class From>
void copy_run(const From* from, To* to, std::int64_t count) {
  if constexpr (sizeof(To) == sizeof(From)) {
    if (count == kBlockChannels) {
      std::memcpy(to, from, kBlockChannels * sizeof(To));
    } else {
      std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(To));
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
  }
}

// Calls visit(first channel, count) for runs of channels that are adjacent in memory.
template <class Visit>
void for_each_run(const TileSide& side, std::int64_t first, std::int64_t count, const Visit& visit) {
  if (side.block == kBlockChannels) return visit(first, count);
  for (const std::int64_t end = first + count; first < end;) {
    const std::int64_t run = std::min(kBlockChannels - first % kBlockChannels, end - first);
    visit(first, run);
    first += run;
  }
}

// The numbers of two steps of a product, as words.
inline void pair_steps(const Bf16* first, const Bf16* second, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t word = first[i].bits | static_cast<std::uint32_t>(second[i].bits) << 16;
    std::memcpy(to + i, &word, sizeof word);
  }
}

template <class T>
const TileKernels<T>& product_kernels() {
  if constexpr (std::is_same_v<T, Bf16>) {
    return narrow_tiles();
  } else {
    return wide_tiles<float>();
  }
}

// The weight gradient: a product whose rows are the output's channels, whose steps are the output's pixels, and whose
// lanes are the values under a window.
template <class T>
class MatrixWeightGradient {
 public:
  explicit MatrixWeightGradient(const MatrixShape& shape);
  void run(CpuStream& stream, const TiledBackwardWeights& pass) const;

 private:
  // Values under the windows, in lanes of a panel: adjacent channels at a place of the window.
  struct Run {
    Place place;
    std::int64_t channel, lane, count;
  };

  std::int64_t words(std::int64_t numbers) const { return ceil_div(numbers, kernels_.pack); }
  void gradient_steps(const T* gradient, std::int64_t first, std::int64_t count, float* to) const;
  void input_steps(const T* input, std::int64_t panel, std::int64_t first, std::int64_t count, float* to) const;
  void write_weights(std::int64_t panel, const float* sums, float* to) const;

  const TileKernels<T>& kernels_ = product_kernels<T>();
  MatrixShape shape_;
  std::int64_t panel_ = 2 * kernels_.lanes;
  std::vector<std::vector<Run>> runs_;  // of each panel of values
};

template <class T>
MatrixWeightGradient<T>::MatrixWeightGradient(const MatrixShape& shape) : shape_(shape) {
  const Phase all = forward_phase(shape_);
  const std::int64_t channels = shape_.input.channels;
  runs_.resize(static_cast<std::size_t>(ceil_div(shape_.values(), panel_)));
  for (std::int64_t i = 0; i < shape_.values();) {
    const std::int64_t channel = i % channels;
    const std::int64_t count = std::min(channels - channel, panel_ - i % panel_);
    for_each_run(shape_.input, channel, count, [&](std::int64_t first, std::int64_t run) {
      runs_[static_cast<std::size_t>(i / panel_)].push_back(
          {all.places[static_cast<std::size_t>(i / channels)], first, i % panel_ + first - channel, run});
    });
    i += count;
  }
}

template <class T>
void MatrixWeightGradient<T>::run(CpuStream& stream, const TiledBackwardWeights& pass) const {
  const std::int64_t outputs = shape_.output.channels;
  const std::int64_t panels = std::ssize(runs_);
  const std::int64_t pixels = shape_.images * shape_.output.rows * shape_.output.columns;
  const std::int64_t steps = std::min(kSlabPixels, pixels);
  const std::int64_t of_gradients = words(steps) * outputs + 16;
  const std::int64_t of_sums = outputs * panel_;
  const std::int64_t own = words(steps) * panel_;
  float* const gradients = stream.scratch(of_gradients + panels * of_sums + stream.workers() * own);
  float* const sums = gradients + of_gradients;
  for (std::int64_t first = 0; first < pixels; first += steps) {
    constexpr std::int64_t kEach = 32;  // even, as steps may come in pairs
    const std::int64_t count = std::min(steps, pixels - first);
    parallel_for(stream, ceil_div(count, kEach), [&](int, std::int64_t part) {
      const std::int64_t begin = part * kEach;
      gradient_steps(static_cast<const T*>(pass.output_gradient), first + begin, std::min(kEach, count - begin),
                     gradients + words(begin) * outputs);
    });
    parallel_for(stream, panels, [&](int worker, std::int64_t panel) {
      float* const b = sums + panels * of_sums + worker * own;
      float* const of_panel = sums + panel * of_sums;
      input_steps(static_cast<const T*>(pass.input), panel, first, count, b);
      multiply(kernels_, false, outputs, {gradients, outputs, b, panel_, words(count), of_panel, first > 0});
      if (first + count == pixels) write_weights(panel, of_panel, pass.window_gradients);
    });
  }
  if (pass.bias_gradient == nullptr) return;
  sum_bias(stream, shape_.output, shape_.images, static_cast<const T*>(pass.output_gradient), pass.bias_gradient);
}

template <class T>
void MatrixWeightGradient<T>::gradient_steps(const T* gradient, std::int64_t first, std::int64_t count,
                                             float* to) const {
  const TileSide& side = shape_.output;
  const std::int64_t pixels = side.rows * side.columns;
  const auto pixel = [&](std::int64_t step) {
    return gradient + (first + step) / pixels * side.image + (first + step) % pixels * side.column;
  };
  for (std::int64_t step = 0; step < count; step += kernels_.pack, to += side.channels) {
    for_each_run(side, 0, side.channels, [&](std::int64_t channel, std::int64_t run) {
      const std::int64_t at = channel_offset(side, channel);
      if constexpr (std::is_same_v<T, Bf16>) {
        static constexpr Bf16 kZeros[kBlockChannels]{};
        if (kernels_.pack == 2 && step + 1 < count) {
          return pair_steps(pixel(step) + at, pixel(step + 1) + at, run, to + channel);
        }
        if (kernels_.pack == 2) {
          for (std::int64_t i = 0; i < run; i += kBlockChannels) {
            pair_steps(pixel(step) + at + i, kZeros, std::min<std::int64_t>(kBlockChannels, run - i), to + channel + i);
          }
          return;
        }
      }
      copy_run(pixel(step) + at, to + channel, run);
    });
  }
}

template <class T>
void MatrixWeightGradient<T>::input_steps(const T* input, std::int64_t panel, std::int64_t first, std::int64_t count,
                                          float* to) const {
  const TileSide& side = shape_.input;
  const std::int64_t columns = shape_.output.columns;
  const std::int64_t pixels = shape_.output.rows * columns;
  const std::vector<Run>& runs = runs_[static_cast<std::size_t>(panel)];
  const auto load_step = [&](std::int64_t step, auto* line) {
    const std::int64_t within = (first + step) % pixels;
    const std::int64_t y = within / columns * shape_.window.stride;
    const std::int64_t x = within % columns * shape_.window.stride;
    const T* const image = input + (first + step) / pixels * side.image;
    for (const Run& run : runs) {
      const std::int64_t row = y + run.place.row;
      const std::int64_t column = x + run.place.column;
      if (is_within(row, side.rows) && is_within(column, side.columns)) {
        copy_run(image + row * side.row + column * side.column + channel_offset(side, run.channel), line + run.lane,
                 run.count);
      } else {
        std::memset(line + run.lane, 0, static_cast<std::size_t>(run.count) * sizeof(*line));
      }
    }
  };
  if (kernels_.pack == 1) {
    if (runs.back().lane + runs.back().count < panel_) {
      std::fill_n(to, count * panel_, 0.0f);
    }
    for (std::int64_t step = 0; step < count; ++step) load_step(step, to + step * panel_);
    return;
  }
  if constexpr (std::is_same_v<T, Bf16>) {
    Bf16 lines[2][2 * kMostLanes]{};
    for (std::int64_t step = 0; step < count; step += 2, to += panel_) {
      load_step(step, lines[0]);
      if (step + 1 < count) {
        load_step(step + 1, lines[1]);
      } else {
        std::memset(lines[1], 0, sizeof lines[1]);
      }
      pair_steps(lines[0], lines[1], panel_, to);
    }
  }
}

template <class T>
void MatrixWeightGradient<T>::write_weights(std::int64_t panel, const float* sums, float* to) const {
  const std::int64_t places = shape_.window.places();
  for (std::int64_t output = 0; output < shape_.output.channels; ++output) {
    for (const Run& run : runs_[static_cast<std::size_t>(panel)]) {
      const float* const from = sums + output * panel_ + run.lane;
      float* const weights = to + output * shape_.values() + run.channel * places + run.place.index;
      if (places == 1) {
        std::copy_n(from, run.count, weights);
      } else {
        for (std::int64_t i = 0; i < run.count; ++i) weights[i * places] = from[i];
      }
    }
  }
}

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
