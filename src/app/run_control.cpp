#include "run_control.hpp"

#include "tutti/base/error.hpp"

#include "streams_and_signals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <utility>

namespace tutti {
namespace {

// Requests of the ranks, reduced to their maximum. Other values combine a signal, or the failure, and the rank that has
// it.
constexpr std::int64_t kNone = 0;
constexpr std::int64_t kKeep = 1;
constexpr std::int64_t kSave = 2;
constexpr std::int64_t kTimeLimitReached = 3;
constexpr std::int64_t kSignalUnit = std::int64_t{1} << 32;
constexpr std::int64_t kFailed = std::int64_t{1} << 61;
constexpr std::int64_t kFolderLost = std::int64_t{1} << 62;

constexpr double kSafety = 1.5;
constexpr double kAssumedBytesPerSecond = 50e6;
constexpr double kSecondsToExit = 1;
constexpr double kSecondsBetweenChecks = 1;
constexpr double kKeepShare = 0.01;  // of the time of a run

}  // namespace

RunControl::RunControl(World& world, const StopSignals& signals, const RunLimits& limits, std::function<double()> clock)
    : world_(world),
      signals_(signals),
      limits_(limits),
      clock_(std::move(clock)),
      now_(clock_()),
      last_save_(now_),
      longest_save_(1 + static_cast<double>(limits.checkpoint_bytes) / kAssumedBytesPerSecond),
      last_check_(now_) {
  signals.begin_polling();
}

BoundaryAction RunControl::at_boundary() {
  measure_gap();
  const BoundaryAction action =
      std::exchange(is_pending_, true) ? action_for(world_.finish_max()) : BoundaryAction::proceed;
  if (action != BoundaryAction::save_and_stop) world_.start_max(local_request());
  return action;
}

BoundaryAction RunControl::action_for(std::int64_t request) {
  if (request == kNone) return BoundaryAction::proceed;
  if (request == kKeep) return BoundaryAction::keep;
  if (request == kFolderLost) throw Error(ErrorSource::save, broadcast_text(world_, loss_, 0)).on_all_ranks();
  if (request >= kFailed) {
    throw Error(ErrorSource::save, broadcast_text(world_, failure_, static_cast<int>(request - kFailed)))
        .on_all_ranks();
  }
  last_save_ = now_;
  if (request == kSave) return BoundaryAction::save;
  if (request == kTimeLimitReached) {
    reason_ = fmt::format("the time limit of {} s", limits_.time_limit);
  } else {
    const int rank = static_cast<int>(request % kSignalUnit);
    reason_ = fmt::format("{} at rank {} on host {}", signal_name(static_cast<int>(request / kSignalUnit)), rank,
                          broadcast_text(world_, world_.host(), rank));
  }
  return BoundaryAction::save_and_stop;
}

// Called on rank 0. Looks at the file system at most once per second.
bool RunControl::has_lost_folder() {
  if (loss_.empty() && now_ - last_check_ >= kSecondsBetweenChecks) {
    last_check_ = now_;
    loss_ = limits_.folder.loss_reason();
  }
  return !loss_.empty();
}

std::int64_t RunControl::local_request() {
  if (world_.rank() == 0 && has_lost_folder()) return kFolderLost;
  if (!failure_.empty()) return kFailed + world_.rank();
  if (const int signal = signals_.first(); signal != 0) return signal * kSignalUnit + world_.rank();
  if (world_.rank() != 0) return kNone;
  if (stdout_is_abandoned()) return SIGPIPE * kSignalUnit;
  if (limits_.time_limit > 0 && limits_.time_limit - now_ < seconds_to_stop()) return kTimeLimitReached;
  if (limits_.save_every > 0 && now_ - last_save_ >= limits_.save_every) return kSave;
  if (!limits_.keeps || now_ < next_keep_) return kNone;
  next_keep_ = std::numeric_limits<double>::infinity();  // until this one is kept
  return kKeep;
}

void RunControl::measure_gap() {
  now_ = clock_();
  if (last_boundary_) {
    const double gap = now_ - *last_boundary_;
    longest_two_gaps_ = std::max(longest_two_gaps_, gap + (last_gap_ > 0 ? last_gap_ : gap));
    last_gap_ = gap;
  }
  last_boundary_ = now_;
}

// A request that is not made now is made at the next boundary and takes effect one boundary later. Then a save that is
// in progress may have to end before the last one starts.
double RunControl::seconds_to_stop() const {
  return kSafety * (longest_two_gaps_ + 2 * longest_save_) + kSecondsToExit;
}

void RunControl::kept(double seconds) { next_keep_ = now_ + seconds / kKeepShare; }

void RunControl::saved(double seconds) {
  longest_save_ = has_saved_ ? std::max(longest_save_, seconds) : seconds;
  has_saved_ = true;
}

}  // namespace tutti
