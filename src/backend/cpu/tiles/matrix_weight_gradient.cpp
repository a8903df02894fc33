#include "backend/cpu/tiles/matrix_weight_gradient.hpp"

namespace tutti::cpu {
namespace {

constexpr std::int64_t kSlabPixels = 256;  // even, as steps may come in pairs

}  // namespace

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

template class MatrixWeightGradient<float>;
template class MatrixWeightGradient<Bf16>;

}  // namespace tutti::cpu
