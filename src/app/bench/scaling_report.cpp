#include "scaling_report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

double efficiency(const ScalingPoint& point, const ScalingPoint& first) {
  return point.images_per_second() / first.images_per_second() * first.ranks / point.ranks;
}

// What a step takes longer than the first point's would if its compute were shared out, or multiplied, at no cost; by
// where it goes, in per cent of the step.
StepAccount lost(const ScalingPoint& point, const ScalingPoint& first) {
  const double share = point.mode == ScalingMode::weak ? 1.0 : static_cast<double>(first.ranks) / point.ranks;
  const StepAccount now = point.account();
  const StepAccount ideal = first.account();
  StepAccount lost;
  for (const StepItem& item : kStepItems) {
    lost.*item.seconds = 100 * (now.*item.seconds - share * ideal.*item.seconds) / now.total();
  }
  return lost;
}

}  // namespace

std::string scaling_head() {
  return fmt::format(
      "{:>57} {:>8} {:>29}\n{:>6} {:>8} {:>5} {:>5} {:>6} {:>9} {:>8} {:>8} {:>9} {:>6} {:>6} {:>6} {:>6} {:>5} "
      "{:>6}\n",
      "", "", "lost, % of the step", "mode", "exchange", "nodes", "ranks", "batch", "median ms", "25 % ms", "75 % ms",
      "images/s", "effic.", "comp.", "imbal.", "exch.", "input", "update");
}

std::string scaling_line(const ScalingPoint& point, const ScalingPoint& first) {
  const Quartiles step = point.quartiles();
  const StepAccount gone = lost(point, first);
  return fmt::format(
      "{:>6} {:>8} {:>5} {:>5} {:>6} {:>9.2f} {:>8.2f} {:>8.2f} {:>9.0f} {:>6.2f} {:>6.1f} {:>6.1f} {:>6.1f} {:>5.1f} "
      "{:>6.1f}{}\n",
      name_of(point.mode), point.exchange, point.nodes, point.ranks, point.batch, step.median * 1e3, step.low * 1e3,
      step.high * 1e3, point.images_per_second(), efficiency(point, first), gone.compute, gone.imbalance, gone.exchange,
      gone.input, gone.update, point.oversubscribed ? "  oversubscribed" : "");
}

Json scaling_json(const ScalingPoint& point, const ScalingPoint& first) {
  const Quartiles step = point.quartiles();
  const StepAccount account = point.account();
  Json time;
  for (const StepItem& item : kStepItems) time[item.name] = account.*item.seconds;
  return {{"mode", name_of(point.mode)},
          {"exchange", point.exchange},
          {"nodes", point.nodes},
          {"ranks", point.ranks},
          {"batch", point.batch},
          {"step_seconds_median", step.median},
          {"step_seconds_low_quartile", step.low},
          {"step_seconds_high_quartile", step.high},
          {"images_per_second", point.images_per_second()},
          {"efficiency", efficiency(point, first)},
          {"oversubscribed", point.oversubscribed},
          {"time", time}};
}

}  // namespace tutti
