#pragma once
// What `trainer forecast` (tools/companions/trainer-forecast) starts from, measured inside the launch: the compute of
// ranks that do not wait for each other, and all-reduces between two ranks of a node and between two nodes.

#include "tutti/train/replica.hpp"

#include "bench.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <vector>

namespace tutti {

// Steps whose phases are timed one by one where the steps themselves are enqueued.
inline constexpr std::int64_t kMostStepsByPhase = 10;

// The run to measure on `ranks` ranks, one part each. All rank counts run the same steps and as many threads a rank.
RunConfig config_for_ranks(const Invocation& invocation, int ranks, std::int64_t batch, int threads);

// A step on one rank with this many images; the exchange in `times` does not count.
struct ComputeProfile {
  std::int64_t images = 0;
  StepTimes times;
};

// Interpolated between two profiles, and on the same straight line beyond the outermost two; below the smallest batch,
// or with one profile alone, no less than in proportion. The update does not depend on the images.
StepTimes times_for(const std::vector<ComputeProfile>& profiles, double images);

struct MeasuredCompute {
  std::vector<ComputeProfile> profiles;  // by ascending images
  std::vector<double> ratios;            // of single steps to the median, ascending
  std::vector<std::int64_t> bucket_ends;
};
// Compute of one rank by its number of images: medians over steps and ranks, the same on all ranks. With --paced the
// first rank computes alone, else all ranks at once. Collective.
MeasuredCompute measure_compute(World& world, const Invocation& invocation, int threads);

// As JSON, valid on rank 0. Collective.
nlohmann::ordered_json measure_forecast_inputs(World& world, const RankOrder& order, const Invocation& invocation,
                                               int threads, const MeasuredCompute& compute);

}  // namespace tutti
