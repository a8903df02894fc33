#include "axis_weights.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tutti {
namespace {

constexpr double kUnits = 65536;  // that make a weight of one

std::int32_t nearest(double value) { return static_cast<std::int32_t>(value + 0.5); }

// Taps come in whole groups where the axis is long enough.
std::int64_t in_groups(std::int64_t taps, std::int64_t input) {
  constexpr std::int64_t kGroup = AxisWeights::kGroup;
  return taps > 1 ? std::min(input, (taps + kGroup - 1) / kGroup * kGroup) : taps;
}

}  // namespace

std::int64_t AxisWeights::Resize::taps_of(const Sizes& sizes) {
  const auto [from, to] = sizes;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  return from == to ? 1 : std::min(from, static_cast<std::int64_t>(std::ceil(2 * std::max(1.0, scale))));
}

void AxisWeights::Resize::plan(const Sizes& sizes, IndexRange rows) {
  const auto [from, to] = sizes;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(1.0, scale);
  taps = taps_of(sizes);
  first.resize(static_cast<std::size_t>(rows.size()));
  weights.resize(static_cast<std::size_t>(rows.size() * taps));
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const double centre = (static_cast<double>(row) + 0.5) * scale;
    const auto lowest = static_cast<std::int64_t>(std::max(0.0, centre - reach + 0.5));
    const std::int64_t begin = from == to ? row : std::min(lowest, from - taps);
    double* const mine = weights.data() + (row - rows.begin) * taps;
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const double distance = std::abs(static_cast<double>(begin + tap) + 0.5 - centre);
      mine[tap] = std::max(0.0, 1.0 - distance / reach);
    }
    const double whole = std::accumulate(mine, mine + taps, 0.0);
    std::transform(mine, mine + taps, mine, [whole](double weight) { return weight / whole; });
    first[static_cast<std::size_t>(row - rows.begin)] = begin;
  }
}

// An output gathers some neighbouring rows of the first resize, whose inputs begin at most so far apart.
std::int64_t AxisWeights::most_taps(const AxisPlan& plan) {
  const std::int64_t inner = Resize::taps_of({.from = plan.input, .to = plan.resized});
  const std::int64_t outer = Resize::taps_of({.from = plan.cut.size(), .to = plan.output});
  const double scale = static_cast<double>(plan.input) / static_cast<double>(plan.resized);
  const auto apart = static_cast<std::int64_t>(std::ceil(static_cast<double>(outer - 1) * scale));
  return in_groups(std::min(plan.input, inner + apart), plan.input);
}

void AxisWeights::plan(const AxisPlan& plan) {
  if (plan == planned_) return;
  planned_ = plan;
  rows_ = {std::max(plan.cut.begin, plan.kept.begin), std::min(plan.cut.end, plan.kept.end)};
  to_resized_.plan({.from = plan.input, .to = plan.resized}, rows_);
  to_output_.plan({.from = plan.cut.size(), .to = plan.output}, {0, plan.output});

  const auto outputs = static_cast<std::size_t>(plan.output);
  taps_ = 1;
  for (std::size_t i = 0; i < outputs; ++i) taps_ = std::max(taps_, span_of(i, plan).inputs.size());
  taps_ = in_groups(taps_, plan.input);
  first_.assign(outputs, 0);
  weights_.assign(outputs * static_cast<std::size_t>(taps_), 0.0f);
  sums_.resize(static_cast<std::size_t>(taps_));
  units_.resize(static_cast<std::size_t>(taps_));
  for (std::size_t i = 0; i < outputs; ++i) gather(i, plan);
  const auto [lowest, highest] = std::ranges::minmax(first_);
  used_ = {lowest, highest + taps_};
}

AxisWeights::Span AxisWeights::span_of(std::size_t output, const AxisPlan& plan) const {
  const std::int64_t begin = plan.cut.begin + to_output_.first[output];
  const IndexRange rows{std::max(begin, rows_.begin), std::min(begin + to_output_.taps, rows_.end)};
  if (rows.size() <= 0) return {};
  const auto first_of = [&](std::int64_t row) {
    return to_resized_.first[static_cast<std::size_t>(row - rows_.begin)];
  };
  return {rows, {first_of(rows.begin), first_of(rows.end - 1) + to_resized_.taps}};
}

void AxisWeights::gather(std::size_t output, const AxisPlan& plan) {
  const auto [rows, inputs] = span_of(output, plan);
  const std::int64_t first = std::min(inputs.begin, plan.input - taps_);
  std::ranges::fill(sums_, 0.0);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const std::int64_t outer_tap = row - plan.cut.begin - to_output_.first[output];
    const double outer =
        to_output_.weights[output * static_cast<std::size_t>(to_output_.taps) + static_cast<std::size_t>(outer_tap)];
    const double* const inner = to_resized_.weights.data() + (row - rows_.begin) * to_resized_.taps;
    double* const sums = sums_.data() + to_resized_.first[static_cast<std::size_t>(row - rows_.begin)] - first;
    for (std::int64_t tap = 0; tap < to_resized_.taps; ++tap) sums[tap] += outer * inner[tap];
  }
  const std::size_t place = plan.mirrored ? first_.size() - 1 - output : output;
  first_[place] = first;
  store(place);
}

// Rounds the sums to units; what rounding loses goes to the largest.
void AxisWeights::store(std::size_t output) {
  const double whole = std::accumulate(sums_.begin(), sums_.end(), 0.0);
  std::ranges::transform(sums_, units_.begin(), [](double sum) { return nearest(sum * kUnits); });
  *std::ranges::max_element(units_) += nearest(whole * kUnits) - std::accumulate(units_.begin(), units_.end(), 0);
  for (std::size_t tap = 0; tap < units_.size(); ++tap) {
    weights_[tap * first_.size() + output] = static_cast<float>(units_[tap]) * static_cast<float>(1 / kUnits);
  }
}

}  // namespace tutti
