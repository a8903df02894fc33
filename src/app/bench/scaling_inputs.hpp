#pragma once
// What a forecast rests on, measured inside the launch: the compute of ranks that do not wait for each other, and sums
// between two ranks of a node and between two nodes.

#include "command_line.hpp"
#include "forecast_inputs.hpp"
#include "rank_order.hpp"
#include "scaling_point.hpp"

#include <vector>

namespace tutti {

// Compute of one rank with a batch of its own of so many images: medians over steps and ranks, and how much single
// steps differ. Either the first rank computes alone, or all of them at once. The same everywhere. Collective.
struct MeasuredCompute {
  ComputeProfile profile;
  std::vector<double> ratios;  // ascending
  std::vector<std::int64_t> bucket_ends;
};
enum class ComputingRanks { first_alone, all_at_once };
MeasuredCompute measure_compute(World& world, const RunConfig& config, const TimedSteps& steps, ComputingRanks who);

// Collective; on rank 0 alone the result counts.
ForecastInputs measure_forecast_inputs(World& world, const RankOrder& order, const Invocation& invocation, int threads);

// How far forecasts are from what was measured on up to two nodes, at most, relative.
double misfit_of(const ForecastInputs& inputs, const std::vector<ScalingPoint>& points, const Invocation& invocation);

}  // namespace tutti
