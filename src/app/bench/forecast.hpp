#pragma once
// What a step would take on more ranks than there are: a simulation of the compute, the buckets and the links, with an
// error band. Always a forecast, never a measurement.

#include "tutti/train/exchange.hpp"

#include "forecast_inputs.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class ScalingMode { strong, weak };
std::string_view name_of(ScalingMode mode);

struct ForecastQuestion {
  ScalingMode mode = ScalingMode::weak;
  ExchangeOptions exchange{};
  std::int64_t batch = 0;  // strong: of all ranks; weak: of each

  // Of the rank that has most.
  std::int64_t images_a_rank(int ranks) const {
    return mode == ScalingMode::strong ? (batch + ranks - 1) / ranks : batch;
  }
};

struct ForecastPoint {
  int ranks = 1;
  int nodes = 1;
  double step_seconds = 0;
  double low = 0;  // of the band around step_seconds
  double high = 0;
  double exposed_seconds = 0;    // of the step: the exchange, beyond the compute
  double images_per_second = 0;  // over all ranks
  double efficiency = 0;         // against as many times one rank
  double efficiency_low = 0;
  double efficiency_high = 0;
};

// Of so many images: between two that were measured and beyond the outermost two, on a straight line; below one, or
// with one alone, no less than in proportion. The update is that of all weights.
StepTimes times_for(const std::vector<ComputeProfile>& profiles, double images);

// Throws an input error when the inputs cannot answer: several nodes without a link between them.
ForecastPoint forecast(const ForecastInputs& inputs, const ForecastQuestion& question, int ranks);

// Why these inputs are not to be extrapolated from: where they were measured, they miss by more than the error that
// forecasts have been shown to have. Empty: they may be.
std::string extrapolation_refusal(const ForecastInputs& inputs);

// "2..1024": 2, 4, 8 .. 1024; "3,5,7"; a usage error otherwise.
std::vector<int> parse_forecast_ranks(const std::string& text);

// The number of ranks, whole nodes, to which one node more would add less than half of what a node does alone; none
// below `most`.
std::optional<int> stops_paying(const ForecastInputs& inputs, const ForecastQuestion& question, int most);

// Inputs and points as people read them; every line of a point says that it is a forecast.
std::string forecast_inputs_table(const ForecastInputs& inputs);
std::string forecast_table(const std::vector<ForecastPoint>& points, const ForecastQuestion& question);

}  // namespace tutti
