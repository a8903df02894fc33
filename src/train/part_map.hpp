#pragma once
// Which rank should play which parts, by what a part takes each of them. Pure arithmetic: ranks with equal figures
// decide alike.

#include "tutti/data/part_plan.hpp"

#include <string>
#include <vector>

namespace tutti {

// By rank, above 0.
using SecondsPerPart = std::vector<double>;

// Of the slowest rank.
double step_seconds(const PartPlan& plan, const SecondsPerPart& seconds);

// The map whose slowest rank is done first; of several such, one near the even one.
PartPlan deal_by_speed(int num_parts, const SecondsPerPart& seconds);

// The same where it shortens the step by more than 5 %, else the map as it is.
PartPlan deal_anew(const PartPlan& plan, const SecondsPerPart& seconds);

// What a map promises, in one line, and whether the slow ranks are worth keeping: "parts 6,2 on 2 ranks: step 41.0 ms
// predicted, even map 60.0 ms; without rank 1 49.0 ms: it is worth keeping". Two ranks or more.
std::string map_note(const PartPlan& plan, const SecondsPerPart& seconds);

// True when all parts are done sooner, by more than 5 %, where the fastest ranks play them alone.
bool is_better_without_some(const PartPlan& plan, const SecondsPerPart& seconds);

}  // namespace tutti
