#include "tutti/train/lr_schedule.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/portable_math.hpp"
#include "tutti/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace tutti {

std::vector<std::int64_t> parse_lr_period(const std::string& text) {
  if (text.empty()) return {};
  std::vector<std::int64_t> epochs = parse_numbers<std::int64_t>(text);
  const bool is_ascending = std::ranges::adjacent_find(epochs, std::greater_equal<>()) == epochs.end();
  if (!epochs.empty() && epochs.front() > 0 && is_ascending) return epochs;
  throw Error(ErrorSource::usage,
              fmt::format("--lr-period {}: give a number of epochs (10), or ascending epochs (30,60,80)", text));
}

void validate(const LrPlan& plan) {
  const auto require = [](bool sensible, const char* option, double value, const char* range) {
    if (!sensible) throw Error(ErrorSource::usage, fmt::format("--{} {}: must be {}", option, value, range));
  };
  require(plan.base >= 0 && std::isfinite(plan.base), "lr", plan.base, "0 or more, and finite");
  require(plan.min >= 0 && plan.min <= plan.base, "min-lr", plan.min, "0 to --lr");
  require(plan.warmup_start >= 0 && plan.warmup_start <= plan.base, "warmup-lr", plan.warmup_start, "0 to --lr");
  require(plan.decay > 0 && plan.decay <= 1, "lr-decay", plan.decay, "above 0 and at most 1");
  require(plan.warmup_epochs >= 0 && plan.warmup_epochs <= 1e6, "warmup-epochs", plan.warmup_epochs, "0 to 1000000");
  if (plan.schedule == Schedule::step && plan.period_epochs.empty()) {
    throw Error(ErrorSource::usage,
                "--schedule step requires --lr-period: a number of epochs (10), or epochs (30,60,80)");
  }
}

LrSchedule::LrSchedule(LrPlan plan, std::int64_t steps_per_epoch, std::int64_t total_steps)
    : plan_(std::move(plan)), total_steps_(total_steps) {
  validate(plan_);
  warmup_steps_ = std::llround(plan_.warmup_epochs * static_cast<double>(steps_per_epoch));
  if (warmup_steps_ > 0 && warmup_steps_ >= total_steps) {
    throw Error(
        ErrorSource::usage,
        fmt::format("--warmup-epochs {} are {} steps, but the schedule has {}: shorten the warm-up, or raise --epochs",
                    plan_.warmup_epochs, warmup_steps_, total_steps));
  }
}

double LrSchedule::at(std::int64_t step, std::int64_t epoch) const {
  if (step < warmup_steps_) {
    const double rise = plan_.base - plan_.warmup_start;
    return plan_.warmup_start + rise * static_cast<double>(step + 1) / static_cast<double>(warmup_steps_);
  }
  const double left = static_cast<double>(total_steps_ - step) / static_cast<double>(total_steps_ - warmup_steps_);
  switch (plan_.schedule) {
    case Schedule::constant:
      return plan_.base;
    case Schedule::step: {
      const auto& periods = plan_.period_epochs;
      const std::int64_t drops = periods.size() == 1
                                     ? epoch / periods.front()
                                     : std::ranges::count_if(periods, [&](auto e) { return e <= epoch; });
      double rate = plan_.base;
      for (std::int64_t i = 0; i < drops; ++i) rate *= plan_.decay;
      return std::max(rate, plan_.min);
    }
    case Schedule::cosine: {
      const double done = static_cast<double>(step - warmup_steps_) / static_cast<double>(total_steps_ - warmup_steps_);
      return plan_.min + (plan_.base - plan_.min) * 0.5 * (1 + portable_cospi(std::min(done, 1.0)));
    }
    case Schedule::linear:
      return plan_.min + (plan_.base - plan_.min) * std::max(left, 0.0);
  }
  return plan_.base;
}

}  // namespace tutti
