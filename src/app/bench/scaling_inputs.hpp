#pragma once
// Measures the inputs of `trainer forecast` (tools/companions/trainer-forecast): the compute time of independent ranks,
// and all-reduces between two ranks of a node and between two nodes.

#include "tutti/train/replica.hpp"

#include "bench.hpp"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <vector>

namespace tutti {

// The number of steps whose phases are timed one by one if steps are enqueued.
inline constexpr std::int64_t kMaxStepsByPhase = 10;

// The run to measure on `ranks` ranks with one part each. All rank counts use the same steps and threads per rank.
RunConfig config_for_ranks(const Invocation& invocation, int ranks, std::int64_t batch, int threads);

// The times of a step on one rank with `images` images, without the exchange.
struct ComputeProfile {
  std::int64_t images = 0;
  StepTimes times;
};

// Interpolates linearly between two profiles, and extrapolates beyond the outermost two. Below the smallest batch, or
// with a single profile, the time is at least proportional to the images. The update does not depend on the images.
StepTimes times_for(const std::vector<ComputeProfile>& profiles, double images);

struct MeasuredCompute {
  std::vector<ComputeProfile> profiles;  // by ascending images
  std::vector<double> ratios;            // of step times to their median, ascending
  std::vector<std::int64_t> bucket_ends;
};
// Measures the compute of one rank by its number of images: medians over steps and ranks, the same on all ranks. With
// --paced, only the first rank computes. Collective.
MeasuredCompute measure_compute(World& world, const Invocation& invocation, int threads);

// As JSON, valid on rank 0. Collective.
nlohmann::ordered_json measure_forecast_inputs(World& world, const RankOrder& order, const Invocation& invocation,
                                               int threads, const MeasuredCompute& compute);

}  // namespace tutti
