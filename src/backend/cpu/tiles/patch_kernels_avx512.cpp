// Compiled for AVX-512, and with a * b + c contracted.
#include "backend/cpu/tiles/lane_kernels.hpp"

#include <immintrin.h>

#include <cstring>

namespace tutti::cpu {
namespace patches {
namespace {

constexpr int kWidth = kImageLanes;
constexpr int kTile = kPatchTile;
constexpr int kWindow = kPatchWindow;
constexpr int kSide = kPatchSide;

#include "backend/cpu/tiles/masked_loads.inc"

// Winograd matrices for the interpolation points 0, 1, -1, -1/2, 5/8, -2 and infinity, which have the smallest rounding
// error: along each axis, the outputs are output * ((window * g) x (input * d)).
struct Matrices {
  float input[kSide][kSide];
  float window[kSide][kWindow];
  float output[kTile][kSide];
};

constexpr Matrices make_matrices() {
  constexpr double kPlaces[kSide - 1] = {0, 1, -1, -0.5, 0.625, -2};
  Matrices m{};
  for (int point = 0; point < kSide; ++point) {
    double polynomial[kSide] = {1};  // with the other points as roots
    double scale = 1;
    for (int other = 0, degree = 0; other < kSide - 1; ++other) {
      if (other == point) continue;
      ++degree;
      for (int power = degree; power >= 0; --power) {
        polynomial[power] = (power > 0 ? polynomial[power - 1] : 0) - kPlaces[other] * polynomial[power];
      }
      if (point < kSide - 1) scale *= kPlaces[point] - kPlaces[other];
    }
    for (int i = 0; i < kSide; ++i) m.input[point][i] = static_cast<float>(polynomial[i]);
    double power = 1;
    for (int i = 0; i < kWindow; ++i) {
      const bool infinite = point == kSide - 1;
      m.window[point][i] = static_cast<float>(infinite ? i == kWindow - 1 : power / scale);
      if (i < kTile) m.output[i][point] = static_cast<float>(infinite ? i == kTile - 1 : power);
      if (!infinite) power *= kPlaces[point];
    }
  }
  return m;
}
constexpr Matrices kMatrices = make_matrices();

struct Input {
  static constexpr int kTo = kSide, kFrom = kSide;
  static constexpr float factor(int to, int from) { return kMatrices.input[to][from]; }
};
struct Window {
  static constexpr int kTo = kSide, kFrom = kWindow;
  static constexpr float factor(int to, int from) { return kMatrices.window[to][from]; }
};
struct Output {
  static constexpr int kTo = kTile, kFrom = kSide;
  static constexpr float factor(int to, int from) { return kMatrices.output[to][from]; }
};
template <class Matrix>
struct Transposed {
  static constexpr int kTo = Matrix::kFrom, kFrom = Matrix::kTo;
  static constexpr float factor(int to, int from) { return Matrix::factor(from, to); }
};

template <class Matrix>
inline void along_one(const Floats* from, Floats* to) {
#pragma GCC unroll 7
  for (int i = 0; i < Matrix::kTo; ++i) {
    Floats sum{};
    bool begun = false;
#pragma GCC unroll 7
    for (int j = 0; j < Matrix::kFrom; ++j) {
      const float factor = Matrix::factor(i, j);
      if (factor == 0) continue;
      sum = begun ? sum + factor * from[j] : factor * from[j];
      begun = true;
    }
    to[i] = sum;
  }
}

// Applies the matrix along both axes, from values at(y, x) to put(y, x, value).
template <class Matrix, class At, class Put>
inline void along_both(const At& at, const Put& put) {
  Floats half[Matrix::kFrom][Matrix::kTo];
  for (int x = 0; x < Matrix::kFrom; ++x) {
    Floats line[Matrix::kFrom];
#pragma GCC unroll 7
    for (int y = 0; y < Matrix::kFrom; ++y) line[y] = at(y, x);
    along_one<Matrix>(line, half[x]);
  }
  for (int y = 0; y < Matrix::kTo; ++y) {
    Floats line[Matrix::kFrom];
    Floats result[Matrix::kTo];
#pragma GCC unroll 7
    for (int x = 0; x < Matrix::kFrom; ++x) line[x] = half[x][y];
    along_one<Matrix>(line, result);
#pragma GCC unroll 7
    for (int x = 0; x < Matrix::kTo; ++x) put(y, x, result[x]);
  }
}

// Calls step(row, column, block, its first value there, its lanes, its points) for the first output of every tile.
template <class T, class Step>
inline void walk(const PatchPass<T>& pass, const Step& step) {
  for (std::int64_t tile = 0; tile < pass.grid.down * pass.grid.across; ++tile) {
    const std::int64_t row = tile / pass.grid.across * kTile;
    const std::int64_t column = tile % pass.grid.across * kTile;
    for (std::int64_t i = 0; i < pass.blocks; ++i) {
      const std::int64_t block = pass.first_block + i;
      step(row, column, pass.image.values + block * pass.image.block, lanes_of(pass.image, block),
           pass.points + (tile * pass.blocks + i) * kWidth);
    }
  }
}

// Values outside the image count as 0.
template <class Matrix, class T>
void to_points(const PatchPass<T>& given) {
  const PatchPass<T> pass = given;
  walk(pass, [&](std::int64_t row, std::int64_t column, const T* values, __mmask16 lanes, float* points) {
    row -= pass.grid.padding;
    column -= pass.grid.padding;
    const auto at = [&](int y, int x) {
      const bool within = is_within(row + y, pass.image.rows) && is_within(column + x, pass.image.columns);
      return within ? load(values + (row + y) * pass.image.row + (column + x) * pass.image.column, lanes) : Floats{};
    };
    along_both<Matrix>(at,
                       [&](int y, int x, const Floats& v) { store(points + (y * kSide + x) * pass.point_stride, v); });
  });
}

template <class T>
void outputs(const PatchOutputsPass<T>& given) {
  const PatchOutputsPass<T> pass = given;
  const LaneImage<T> image = pass.to.image;
  walk(pass.to, [&](std::int64_t row, std::int64_t column, T* values, __mmask16 lanes, const float* points) {
    const std::int64_t lane = (points - pass.to.points) % (pass.to.blocks * kWidth);
    const Floats bias = pass.bias == nullptr ? Floats{} : load(pass.bias + lane);
    along_both<Output>([&](int y, int x) { return load(points + (y * kSide + x) * pass.to.point_stride); },
                       [&](int y, int x, const Floats& v) {
                         if (row + y >= image.rows || column + x >= image.columns) return;
                         const Floats value = v + bias;
                         store(values + (row + y) * image.row + (column + x) * image.column,
                               pass.relu ? positive(value) : value, lanes);
                       });
  });
}

template <class T>
void input_gradients(const PatchScatterPass<T>& given) {
  const PatchScatterPass<T> pass = given;
  const LaneImage<T> image = pass.to.image;
  for (std::int64_t i = 0; i < pass.to.blocks; ++i) {
    std::memset(pass.sums, 0, static_cast<std::size_t>(image.rows * image.columns) * sizeof(Floats));
    for (std::int64_t tile = 0; tile < pass.to.grid.down * pass.to.grid.across; ++tile) {
      const std::int64_t row = tile / pass.to.grid.across * kTile - pass.to.grid.padding;
      const std::int64_t column = tile % pass.to.grid.across * kTile - pass.to.grid.padding;
      const float* const points = pass.to.points + (tile * pass.to.blocks + i) * kWidth;
      along_both<Transposed<Input>>([&](int y, int x) { return load(points + (y * kSide + x) * pass.to.point_stride); },
                                    [&](int y, int x, const Floats& v) {
                                      if (!is_within(row + y, image.rows) || !is_within(column + x, image.columns))
                                        return;
                                      float* const sum = pass.sums + ((row + y) * image.columns + column + x) * kWidth;
                                      store(sum, load(sum) + v);
                                    });
    }
    const std::int64_t block = pass.to.first_block + i;
    T* const values = image.values + block * image.block;
    for (std::int64_t pixel = 0; pixel < image.rows * image.columns; ++pixel) {
      store(values + pixel * image.column, load(pass.sums + pixel * kWidth), lanes_of(image, block));
    }
  }
}

void windows(const PatchWindowsPass& given) {
  const PatchWindowsPass pass = given;
  along_both<Window>(
      [&](int y, int x) { return load(pass.taps + (y * kWindow + x) * kWidth); },
      [&](int y, int x, const Floats& v) { store(pass.points + (y * kSide + x) * pass.point_stride, v); });
}

void window_gradients(const PatchWindowsPass& given) {
  const PatchWindowsPass pass = given;
  along_both<Transposed<Window>>(
      [&](int y, int x) { return load(pass.points + (y * kSide + x) * pass.point_stride); },
      [&](int y, int x, const Floats& v) { store(pass.taps + (y * kWindow + x) * kWidth, v); });
}

template <class T>
void sum_channels(const LaneImage<const T>& given, float* sums) {
  const LaneImage<const T> image = given;
  for (std::int64_t block = 0; block * kWidth < image.channels; ++block) {
    Floats sum{};
    for (std::int64_t y = 0; y < image.rows; ++y) {
      Floats line{};
      for (std::int64_t x = 0; x < image.columns; ++x) {
        line += load(image.values + block * image.block + y * image.row + x * image.column, lanes_of(image, block));
      }
      sum += line;
    }
    store(sums + block * kWidth, sum);
  }
}

template <class T>
constexpr PatchKernels<T> kKernels{
    .inputs = to_points<Input, const T>,
    .gradients = to_points<Transposed<Output>, const T>,
    .outputs = outputs<T>,
    .input_gradients = input_gradients<T>,
    .windows = windows,
    .window_gradients = window_gradients,
    .sum_channels = sum_channels<T>,
};

}  // namespace
}  // namespace patches

template <class T>
const PatchKernels<T>& patch_kernels_avx512() {
  return patches::kKernels<T>;
}
template const PatchKernels<float>& patch_kernels_avx512();
template const PatchKernels<Bf16>& patch_kernels_avx512();

}  // namespace tutti::cpu
