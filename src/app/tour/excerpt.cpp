#include "excerpt.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <variant>

namespace tutti {
namespace {

constexpr std::int64_t kSide = 3;

struct Grid {
  std::int64_t first = 0;  // element of the slice
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t row_length = 1;  // of the matrix that it is cut from
};

std::vector<std::int64_t> elements_in(const Grid& grid) {
  std::vector<std::int64_t> elements;
  for (std::int64_t row = 0; row < grid.rows; ++row) {
    for (std::int64_t column = 0; column < grid.columns; ++column) {
      elements.push_back(grid.first + row * grid.row_length + column);
    }
  }
  return elements;
}

Excerpt in_filter(const ParameterSlice& slice, const Conv2dSpec& spec) {
  const std::int64_t side = std::min(kSide, spec.kernel);
  std::string words = slice.name + ", filter 0";
  if (slice.shape[1] > 1) words += ", channel 0";
  if (spec.kernel > side) words += fmt::format(", {0}x{0} of its {1}x{1}", side, spec.kernel);
  return {.slice = slice,
          .columns = side,
          .elements = elements_in({.rows = side, .columns = side, .row_length = spec.kernel}),
          .words = std::move(words)};
}

// Corners of images are often empty, and weights that see nothing have no gradient.
Excerpt in_unit(const ParameterSlice& slice, const Shape& input) {
  const bool is_image = input.rank() == 3 && input[1] >= kSide && input[2] >= kSide;
  Grid grid{.columns = std::min(kSide, slice.shape[1])};
  if (is_image) {
    grid = {.first = (input[1] - kSide) / 2 * input[2] + (input[2] - kSide) / 2,
            .rows = kSide,
            .columns = kSide,
            .row_length = input[2]};
  }
  return {.slice = slice,
          .columns = grid.columns,
          .elements = elements_in(grid),
          .words = slice.name + (is_image ? ", unit 0, amid the image" : ", unit 0")};
}

}  // namespace

Excerpt choose_excerpt(const Network& network) {
  for (const NetworkLayer& layer : network.layers()) {
    if (layer.parameters.empty()) continue;
    const ParameterSlice& slice = network.layout().slice(layer.parameters.front());
    if (const auto* conv = std::get_if<Conv2dSpec>(&layer.spec)) return in_filter(slice, *conv);
    if (std::holds_alternative<LinearSpec>(layer.spec)) return in_unit(slice, layer.input);
  }
  throw Error(ErrorSource::input,
              fmt::format("the network {} has no layer with weights, so there is nothing to look at: give another "
                          "--model",
                          network.spec().name));
}

std::vector<double> read_excerpt(Backend& backend, const Tensor& block, const Excerpt& excerpt) {
  const auto stream = backend.make_stream();
  const auto values = read_slices(backend, *stream, block, std::span(&excerpt.slice, 1)).front();
  std::vector<double> shown;
  for (const std::int64_t element : excerpt.elements) shown.push_back(values.at(static_cast<std::size_t>(element)));
  return shown;
}

std::string ValueScale::text(double value) const { return fmt::format("{:>{}.{}f}", value * factor, kWidth, decimals); }

ValueScale scale_for(std::span<const std::vector<double>> values) {
  constexpr double kThousand = 1000;
  constexpr int kMostThousands = 10;
  double greatest = 0;
  for (const auto& some : values) {
    for (const double value : some) greatest = std::max(greatest, std::abs(value));
  }
  ValueScale scale;
  int thousands = 0;
  for (; greatest > 0 && greatest * scale.factor < 0.1 && thousands < kMostThousands; ++thousands) {
    scale.factor *= kThousand;
  }
  if (thousands == 1) scale.words = ", times 1000";
  if (thousands > 1) scale.words = fmt::format(", times 10^{}", 3 * thousands);
  if (greatest * scale.factor >= 10) --scale.decimals;
  return scale;
}

std::vector<std::string> excerpt_text(const Excerpt& excerpt, const std::vector<double>& values,
                                      const ValueScale& scale) {
  std::vector<std::string> rows;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % static_cast<std::size_t>(excerpt.columns) == 0) rows.emplace_back();
    if (!rows.back().empty()) rows.back() += " ";
    rows.back() += scale.text(values[i]);
  }
  return rows;
}

}  // namespace tutti
