#pragma once
// What a forecast rests on, measured inside the launch: the compute of ranks that do not wait for each other, and sums
// between two ranks of a node and between two nodes.

#include "command_line.hpp"
#include "forecast_inputs.hpp"
#include "rank_order.hpp"
#include "scaling_point.hpp"

#include <optional>
#include <vector>

namespace tutti {

// Compute of one rank by the images of a batch of its own, medians over steps and ranks, and how much single steps
// differ. Where the compute is slept through, the first rank computes alone; else all do at once. The same everywhere.
// Collective.
struct MeasuredCompute {
  std::vector<ComputeProfile> profiles;  // by images ascending
  std::vector<double> ratios;            // ascending
  std::vector<std::int64_t> bucket_ends;
};
MeasuredCompute measure_compute(World& world, const Invocation& invocation, int threads);

// All but who moves the exchange on, and the misfit. Collective; on rank 0 alone the result counts.
ForecastInputs measure_forecast_inputs(World& world, const RankOrder& order, const Invocation& invocation, int threads,
                                       const MeasuredCompute& compute);

// How far forecasts are from what was measured on one whole node and two, at most, relative; none: neither was, or not
// without ranks sharing cores.
std::optional<double> misfit_of(const ForecastInputs& inputs, const std::vector<ScalingPoint>& points,
                                const Invocation& invocation);

}  // namespace tutti
