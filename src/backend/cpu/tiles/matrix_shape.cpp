#include "backend/cpu/tiles/matrix_shape.hpp"

namespace tutti::cpu {
namespace {

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

}  // namespace

Phase forward_phase(const MatrixShape& shape) {
  const MatrixWindow& window = shape.window;
  Phase phase{0, 0, 1, shape.output.rows, shape.output.columns, window.stride, {}};
  for (std::int64_t i = 0; i < window.places(); ++i) {
    phase.places.push_back({i, i / window.columns * window.dilation - window.padding,
                            i % window.columns * window.dilation - window.padding});
  }
  return phase;
}

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

}  // namespace tutti::cpu
