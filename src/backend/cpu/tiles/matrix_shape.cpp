#include "backend/cpu/tiles/matrix_shape.hpp"

namespace tutti::cpu {
namespace {

std::int64_t floor_mod(std::int64_t value, std::int64_t by) { return (value % by + by) % by; }

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
  std::vector<Phase> phases;
  for (std::int64_t row = 0; row < stride; ++row) {
    for (std::int64_t column = 0; column < stride; ++column) {
      Phase phase{
          row, column, stride, ceil_div(shape.input.rows - row, stride), ceil_div(shape.input.columns - column, stride),
          1,   {}};
      for (std::int64_t i = 0; i < window.places(); ++i) {
        const std::int64_t down = row + window.padding - i / window.columns * window.dilation;
        const std::int64_t across = column + window.padding - i % window.columns * window.dilation;
        if (floor_mod(down, stride) != 0 || floor_mod(across, stride) != 0) continue;
        phase.places.push_back({i, down / stride, across / stride});
      }
      phases.push_back(std::move(phase));
    }
  }
  return phases;
}

}  // namespace tutti::cpu
