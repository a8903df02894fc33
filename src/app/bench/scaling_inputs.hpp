#pragma once
// What `trainer forecast` (tools/companions/trainer-forecast) starts from, measured inside the launch: the compute of
// ranks that do not wait for each other, and sums between two ranks of a node and between two nodes.

#include "tutti/train/step_times.hpp"

#include "command_line.hpp"
#include "rank_order.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <vector>

namespace tutti {

// A step on one rank with this many images; of `times`, the exchange does not count.
struct ComputeProfile {
  std::int64_t images = 0;
  StepTimes times;
};

// With this many images: between two profiles and beyond the outermost two, on a straight line; below one, or with one
// alone, no less than in proportion. The update is that of all weights.
StepTimes times_for(const std::vector<ComputeProfile>& profiles, double images);

// Compute of one rank by the images of a batch of its own, medians over steps and ranks, and how much single steps
// differ. Where the compute is slept through, the first rank computes alone; else all do at once. The same everywhere.
// Collective.
struct MeasuredCompute {
  std::vector<ComputeProfile> profiles;  // by images ascending
  std::vector<double> ratios;            // ascending
  std::vector<std::int64_t> bucket_ends;
};
MeasuredCompute measure_compute(World& world, const Invocation& invocation, int threads);

// As JSON; on rank 0 alone the result counts. Collective.
nlohmann::ordered_json measure_forecast_inputs(World& world, const RankOrder& order, const Invocation& invocation,
                                               int threads, const MeasuredCompute& compute);

}  // namespace tutti
