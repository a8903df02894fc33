#pragma once
// The learning rate as a pure function of the step.

#include "tutti/base/enum_names.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

enum class Schedule { constant, step, cosine, linear };
constexpr std::array<std::string_view, 4> enum_names(Schedule) { return {"constant", "step", "cosine", "linear"}; }
// Whether it falls to its minimum at a planned end.
constexpr bool has_end(Schedule schedule) { return schedule == Schedule::cosine || schedule == Schedule::linear; }

struct LrPlan {
  Schedule schedule = Schedule::constant;
  double base = 0.05;
  // step: multiplied by `decay` every period epochs (one number), or at each of these epochs.
  std::vector<std::int64_t> period_epochs{};
  double decay = 0.1;
  // Over W = warmup_epochs * steps_per_epoch steps the rate rises linearly from warmup_start, exclusive, to base.
  double warmup_epochs = 0;
  double warmup_start = 0;
  double min = 0;  // final rate of cosine and linear, lower bound of step
};

// "10" is every 10 epochs; "30,60,80" are the epochs at which the rate drops. Throws a usage error.
std::vector<std::int64_t> parse_lr_period(const std::string& text);

// Throws a usage error for values out of range, and for a step schedule without a period.
void validate(const LrPlan& plan);

class LrSchedule {
 public:
  // `total_steps` is the length of the schedule, not of one invocation. Throws the errors of validate(), and a usage
  // error for a warm-up as long as the schedule.
  LrSchedule(LrPlan plan, std::int64_t steps_per_epoch, std::int64_t total_steps);

  // `step` counts from 0 over the whole run; `epoch`, from 0, contains it. Cosine and linear fall from base at the
  // first step after the warm-up to `min` after the last.
  double at(std::int64_t step, std::int64_t epoch) const;

 private:
  LrPlan plan_;
  std::int64_t warmup_steps_ = 0;
  std::int64_t total_steps_;
};

}  // namespace tutti
