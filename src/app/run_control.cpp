#include "run_control.hpp"

#include "tutti/base/error.hpp"

#include "process.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace tutti {
namespace {

// What ranks say to each other; the greatest counts. Greater ones are a signal and the rank that it came to.
constexpr std::int64_t kNothing = 0;
constexpr std::int64_t kSave = 1;
constexpr std::int64_t kTimeIsUp = 2;
constexpr std::int64_t kOneSignal = std::int64_t{1} << 32;
constexpr std::int64_t kFolderIsLost = std::int64_t{1} << 62;

constexpr double kSafety = 1.5;
constexpr double kUnseenBytesPerSecond = 50e6;
constexpr double kSecondsToLeave = 1;
constexpr double kSecondsBetweenLooks = 1;

}  // namespace

RunControl::RunControl(World& world, const StopSignals& signals, const RunLimits& limits, std::function<double()> clock)
    : world_(world),
      signals_(signals),
      limits_(limits),
      clock_(std::move(clock)),
      now_(clock_()),
      last_save_(now_),
      longest_save_(1 + static_cast<double>(limits.checkpoint_bytes) / kUnseenBytesPerSecond),
      last_look_(now_) {}

BoundaryAction RunControl::at_boundary() {
  watch_pace();
  const BoundaryAction action =
      std::exchange(is_asking_, true) ? follow(world_.end_greatest()) : BoundaryAction::proceed;
  if (action != BoundaryAction::save_and_stop) world_.begin_greatest(own_word());
  return action;
}

BoundaryAction RunControl::follow(std::int64_t word) {
  if (word == kNothing) return BoundaryAction::proceed;
  if (word == kFolderIsLost) throw Error(ErrorSource::save, broadcast_text(world_, loss_, 0)).on_all_ranks();
  last_save_ = now_;
  if (word == kSave) return BoundaryAction::save;
  if (word == kTimeIsUp) {
    reason_ = fmt::format("the time limit of {} s", limits_.time_limit);
  } else {
    const int rank = static_cast<int>(word % kOneSignal);
    reason_ = fmt::format("{} at rank {} on host {}", signal_name(static_cast<int>(word / kOneSignal)), rank,
                          broadcast_text(world_, world_.host(), rank));
  }
  return BoundaryAction::save_and_stop;
}

// For rank 0; asked often, the file system is not.
bool RunControl::has_lost_folder() {
  if (loss_.empty() && now_ - last_look_ >= kSecondsBetweenLooks) {
    last_look_ = now_;
    loss_ = limits_.folder.loss();
  }
  return !loss_.empty();
}

std::int64_t RunControl::own_word() {
  if (world_.rank() == 0 && has_lost_folder()) return kFolderIsLost;
  if (const int signal = signals_.first(); signal != 0) return signal * kOneSignal + world_.rank();
  if (world_.rank() != 0) return kNothing;
  if (stdout_is_abandoned()) return SIGPIPE * kOneSignal;
  if (limits_.time_limit > 0 && limits_.time_limit - now_ < seconds_to_stop()) return kTimeIsUp;
  return limits_.save_every > 0 && now_ - last_save_ >= limits_.save_every ? kSave : kNothing;
}

void RunControl::watch_pace() {
  now_ = clock_();
  if (last_boundary_) {
    const double gap = now_ - *last_boundary_;
    longest_two_gaps_ = std::max(longest_two_gaps_, gap + (last_gap_ > 0 ? last_gap_ : gap));
    last_gap_ = gap;
  }
  last_boundary_ = now_;
}

// A word left unsaid now is said at the next boundary and followed at the one after it; then a save that is under way
// may have to end before the last one begins.
double RunControl::seconds_to_stop() const {
  return kSafety * (longest_two_gaps_ + 2 * longest_save_) + kSecondsToLeave;
}

void RunControl::saved(double seconds) {
  longest_save_ = has_saved_ ? std::max(longest_save_, seconds) : seconds;
  has_saved_ = true;
}

}  // namespace tutti
