// Compiled for AVX-512, and with a * b + c contracted.
#include "backend/cpu/tiles/lane_kernels.hpp"

#include <immintrin.h>

#include <cstring>

namespace tutti::cpu {
namespace few_channel {
namespace {

constexpr int kWidth = kImageLanes;
constexpr std::size_t kPrefetchBytes = 1024;  // activations of first layers do not fit the caches
constexpr int kMaxRows = 13;                  // two registers each, of 32, beside what is multiplied

#include "backend/cpu/tiles/masked_loads.inc"

inline Floats broadcast_lane(const float* value) { return reinterpret_cast<Floats>(_mm512_set1_ps(*value)); }

// Calls rows<count>(first) for groups of at most kMaxRows, as even as can be.
template <int kCount, class Rows>
inline void with_count(std::int64_t count, const Rows& rows) {
  if constexpr (kCount > 1) {
    if (count < kCount) return with_count<kCount - 1>(count, rows);
  }
  rows.template operator()<kCount>();
}
template <class Rows>
inline void in_groups(std::int64_t all, const Rows& rows) {
  const std::int64_t groups = (all + kMaxRows - 1) / kMaxRows;
  for (std::int64_t group = 0, first = 0; group < groups; ++group) {
    const std::int64_t count = all * (group + 1) / groups - first;
    with_count<kMaxRows>(count, [&]<int kCount>() { rows.template operator()<kCount>(first); });
    first += count;
  }
}

struct PanelAt {
  std::int64_t panel, y, x;
};

template <int kPixels, class T>
void forward_pixels(const FewChannelForwardPass<T>& pass, const PanelAt& at) {
  const FewChannelWindow window = pass.window;
  const float* weights = pass.weights + at.panel * window.rows * window.run * kPanel;
  Floats sums[kPixels][2];
#pragma GCC unroll 13
  for (int i = 0; i < kPixels; ++i) {
    sums[i][0] = load(pass.bias + at.panel * kPanel);
    sums[i][1] = load(pass.bias + at.panel * kPanel + kWidth);
  }
  const float* const input = pass.input + at.y * window.next_row + at.x * window.next_column;
  for (std::int64_t row = 0; row < window.rows; ++row) {
    const float* values = input + row * window.row;
    for (std::int64_t i = 0; i < window.run; ++i, ++values, weights += kPanel) {
      const Floats first = load(weights);
      const Floats second = load(weights + kWidth);
#pragma GCC unroll 13
      for (int pixel = 0; pixel < kPixels; ++pixel) {
        const Floats value = broadcast_lane(values + pixel * window.next_column);
        sums[pixel][0] += value * first;
        sums[pixel][1] += value * second;
      }
    }
  }
  const LaneImage<T> image = pass.output;
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const std::int64_t block = at.panel * 2 + half;
    const __mmask16 lanes = lanes_of(image, block);
    T* const to = image.values + block * image.block + at.y * image.row + at.x * image.column;
#pragma GCC unroll 13
    for (int i = 0; i < kPixels; ++i) {
      const Floats sum = sums[i][half];
      __builtin_prefetch(to + i * image.column + kPrefetchBytes / sizeof(T), 1);
      store(to + i * image.column, pass.relu ? positive(sum) : sum, lanes);
    }
  }
}

template <class T>
void forward(const FewChannelForwardPass<T>& given) {
  const FewChannelForwardPass<T> pass = given;
  for (std::int64_t y = 0; y < pass.output.rows; ++y) {
    for (std::int64_t panel = 0; panel * kPanel < pass.output.channels; ++panel) {
      in_groups(pass.output.columns, [&]<int kPixels>(std::int64_t x) {
        forward_pixels<kPixels>(pass, {panel, y, x});
      });
    }
  }
}

template <int kValues, class T>
void sum_values(const FewChannelWeightsPass<T>& pass, std::int64_t panel, std::int64_t first) {
  const FewChannelWindow window = pass.window;
  const LaneImage<const T> image = pass.gradient;
  std::int64_t places[kValues];
  for (int i = 0; i < kValues; ++i) {
    places[i] = (first + i) / window.run * window.row + (first + i) % window.run;
  }
  const __mmask16 lanes[2] = {lanes_of(image, panel * 2), lanes_of(image, panel * 2 + 1)};
  Floats sums[kValues][2] = {};
  Floats ones[2] = {};
  for (std::int64_t y = 0; y < image.rows; ++y) {
    const float* input = pass.input + y * window.next_row;
    std::int64_t place = panel * 2 * image.block + y * image.row;
    for (std::int64_t x = 0; x < image.columns; ++x, input += window.next_column, place += image.column) {
      __builtin_prefetch(image.values + place + kPrefetchBytes / sizeof(T));
      if (pass.output != nullptr) __builtin_prefetch(pass.output + place + kPrefetchBytes / sizeof(T));
      Floats gradient[2];
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const std::int64_t at = place + half * image.block;
        gradient[half] = load(image.values + at, lanes[half]);
        if (pass.output != nullptr) {
          gradient[half] = where_positive(load(pass.output + at, lanes[half]), gradient[half]);
        }
        ones[half] += gradient[half];
      }
#pragma GCC unroll 13
      for (int i = 0; i < kValues; ++i) {
        const Floats value = broadcast_lane(input + places[i]);
        sums[i][0] += value * gradient[0];
        sums[i][1] += value * gradient[1];
      }
    }
  }
  const std::int64_t values = window.rows * window.run;
  float* const to = pass.sums + panel * (values + 1) * kPanel;
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 13
    for (int i = 0; i < kValues; ++i) store(to + (first + i) * kPanel + half * kWidth, sums[i][half]);
    store(to + values * kPanel + half * kWidth, ones[half]);
  }
}

template <class T>
void backward_weights(const FewChannelWeightsPass<T>& given) {
  const FewChannelWeightsPass<T> pass = given;
  for (std::int64_t panel = 0; panel * kPanel < pass.gradient.channels; ++panel) {
    in_groups(pass.window.rows * pass.window.run,
              [&]<int kValues>(std::int64_t first) { sum_values<kValues>(pass, panel, first); });
  }
}

template <class T>
constexpr FewChannelKernels<T> kKernels{.forward = forward<T>, .backward_weights = backward_weights<T>};

}  // namespace
}  // namespace few_channel

template <class T>
const FewChannelKernels<T>& few_channel_kernels_avx512() {
  return few_channel::kKernels<T>;
}
template const FewChannelKernels<float>& few_channel_kernels_avx512();
template const FewChannelKernels<Bf16>& few_channel_kernels_avx512();

}  // namespace tutti::cpu
