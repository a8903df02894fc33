#pragma once
// What a sweep tells: a row for each combination, accuracy and time side by side, as a table and as JSON.

#include "sweep_plan.hpp"
#include "sweep_training.hpp"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

namespace tutti {

// By case; none: it was left out, or its turn has not come.
using SweepOutcomes = std::vector<std::optional<SweepOutcome>>;

std::string sweep_head(const SweepPlan& plan);
// Of a case that has had its turn.
std::string sweep_line(const SweepPlan& plan, const SweepOutcomes& outcomes, std::size_t row);
// What the rows come to.
std::string sweep_foot(const SweepPlan& plan, const SweepOutcomes& outcomes);

nlohmann::ordered_json sweep_row_json(const SweepPlan& plan, const SweepOutcomes& outcomes, std::size_t row);

}  // namespace tutti
