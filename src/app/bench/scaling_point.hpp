#pragma once
// One set of ranks under one exchange, measured in rounds: what a step takes, and where that goes.

#include "bench.hpp"
#include "rank_order.hpp"
#include "step_account.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class ScalingMode { strong, weak };
std::string_view name_of(ScalingMode mode);

struct ScalingPoint {
  ScalingMode mode = ScalingMode::weak;
  std::string exchange;
  int nodes = 1;
  int ranks = 1;
  std::int64_t batch = 0;
  bool oversubscribed = false;
  std::vector<double> steps{};  // seconds, of all rounds
  std::vector<double> round_medians{};
  std::vector<StepAccount> rounds{};

  // Quartiles of all steps; the median is that of the rounds' medians.
  Quartiles quartiles() const;
  StepAccount account() const { return mean_of(rounds); }
  double images_per_second() const { return static_cast<double>(batch) / quartiles().median; }
};

// Every rank count runs the same steps on as many threads a rank, so that only the ranks differ.
RunConfig config_for(const Invocation& invocation, const ScalingPoint& point, int threads);

// One round on the ranks of this world, with the compute as it is or, where a pace is given, slept through; `point`
// gets the figures. Collective.
void measure_round(World& working, const RunConfig& config, const TimedSteps& steps,
                   const std::optional<StepTimes>& pace, ScalingPoint& point);

}  // namespace tutti
