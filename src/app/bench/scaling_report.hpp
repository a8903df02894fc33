#pragma once
// What bench scaling tells people and machines.

#include "scaling_point.hpp"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace tutti {

std::string scaling_head();
// `first` is the point of fewest ranks of the same mode and exchange, against which efficiency and lost time count.
std::string scaling_line(const ScalingPoint& point, const ScalingPoint& first);
nlohmann::ordered_json scaling_json(const ScalingPoint& point, const ScalingPoint& first);

}  // namespace tutti
