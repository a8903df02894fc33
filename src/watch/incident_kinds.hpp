#pragma once
// The words for incidents.

#include "tutti/watch/incident.hpp"

#include <array>
#include <string_view>

namespace tutti {

inline constexpr std::string_view kGradients = "gradients";

struct IncidentWords {
  IncidentKind kind;
  std::string_view name;
  std::string_view keys;  // besides seed
};

inline constexpr std::array<IncidentWords, 6> kIncidentWords{
    {{IncidentKind::kill, "kill", "rank step phase"},
     {IncidentKind::stop, "stop", "rank step phase"},
     {IncidentKind::delay, "delay", "rank step steps phase seconds ms"},
     {IncidentKind::flip, "flip", "rank step of tensor element bit"},
     {IncidentKind::drop_bucket, "drop-bucket", "rank step bucket"},
     {IncidentKind::slow_link, "slow-link", "rank step steps mbps ms"}}};

// Those that every step of every rank has.
inline constexpr std::array<Phase, 5> kDrawnPhases{Phase::data, Phase::forward, Phase::backward, Phase::exchange,
                                                   Phase::update};

}  // namespace tutti
