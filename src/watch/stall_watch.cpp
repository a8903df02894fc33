#include "tutti/watch/stall_watch.hpp"

#include "tutti/base/descriptor.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/exit_status.hpp"
#include "tutti/base/program_name.hpp"
#include "tutti/base/signals.hpp"

#include "end_action.hpp"
#include "host_watch.hpp"
#include "interfaces.hpp"
#include "last_signals.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace tutti {
namespace {

constexpr int kBeatMilliseconds = 100;
constexpr double kLateBeatSeconds = 1;  // a beat so late was held up, and with it perhaps all else

// The launcher that saw a process go gets so long to end this one, which then asks for the end, and so long again.
constexpr double kLauncherSeconds = 2;
constexpr double kAbortSeconds = 1;
constexpr double kActionSeconds = 1;
// Other hosts hear of the end before what ends it shows there.
constexpr int kAnnouncements = 3;
constexpr std::chrono::milliseconds kBetweenAnnouncements{30};

// How long after a signal to end the end of a process still explains it, and is not explained by it.
constexpr double kExplainsSeconds = 0.5;

constexpr std::int64_t in_ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

[[noreturn]] void wait_for_end() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace

void refuse_unfit(const StallWatchOptions& options) {
  chosen_interfaces(options.interface);
  if (options.timeout_seconds >= 1 && options.timeout_seconds <= 1e6) return;
  throw Error(ErrorSource::usage,
              fmt::format("--stall-timeout {}: must be 1 to 1000000 seconds; a rank tells of itself "
                          "every {} s, and a busy machine may hold it up for several times that",
                          options.timeout_seconds, kBeatMilliseconds * 1e-3));
}

class StallWatch::Watcher {
 public:
  explicit Watcher(Signals signals)
      : signals_(signals == Signals::last), wake_(::eventfd(0, EFD_CLOEXEC)), thread_([this] { run(); }) {}
  ~Watcher() { stop(); }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  void begin(World& world, const StallWatchOptions& options, const Log& log);
  void set_timeout(double seconds) { timeout_seconds_ = std::max(1.0, seconds); }
  PlaceSlot& place_slot() { return host_ ? host_->own().place : own_place_; }
  void notice_signals(std::function<bool()> has_come);
  void tell_end_to(std::function<void(const StallReport&)> note);
  void before_end(std::function<void()> action) { action_.set(std::move(action)); }
  bool is_ending() noexcept;
  void come_to(RankEnd end) noexcept;
  void stop() noexcept;

 private:
  void run();
  void beat(std::int64_t now, bool on_time);
  void follow_signals(std::int64_t now);
  void leave_note(const StallReport& report) const;
  [[noreturn]] void end_job(const Verdict& verdict);
  [[noreturn]] void end_process();
  void wait_for_launcher(double seconds);

  LastSignals signals_;
  Descriptor wake_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<double> timeout_seconds_ = 300;
  PlaceSlot own_place_;
  EndAction action_;

  std::mutex mutex_;  // guards all that follows
  World* world_ = nullptr;
  std::unique_ptr<HostWatch> host_;
  std::function<bool()> has_signal_come_;
  std::optional<std::int64_t> signal_ns_;
  std::function<void(const StallReport&)> note_;

  std::thread thread_;  // last, so that it begins when all else is there
};

void StallWatch::Watcher::begin(World& world, const StallWatchOptions& options, const Log& log) {
  run_agreed(world, [&] { refuse_unfit(options); });
  set_timeout(options.timeout_seconds);
  std::unique_ptr<HostWatch> host;
  try {
    host = std::make_unique<HostWatch>(world, options.interface, log);
  } catch (const Error& error) {
    if (error.source() == ErrorSource::usage) throw;
    if (world.rank() == 0) log.warn(fmt::format("nobody watches for stalled ranks: {}", error.what()));
    return;
  }
  const std::lock_guard lock(mutex_);
  host_ = std::move(host);
  world_ = &world;
}

void StallWatch::Watcher::notice_signals(std::function<bool()> has_come) {
  const std::lock_guard lock(mutex_);
  has_signal_come_ = std::move(has_come);
}

void StallWatch::Watcher::tell_end_to(std::function<void(const StallReport&)> note) {
  const std::lock_guard lock(mutex_);
  note_ = std::move(note);
}

// A beat takes far less time; whoever holds the lock longer ends the job.
bool StallWatch::Watcher::is_ending() noexcept {
  for (int attempt = 0; attempt < 50; ++attempt) {
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) return host_ && host_->is_ending();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void StallWatch::Watcher::come_to(RankEnd end) noexcept {
  {
    const std::lock_guard lock(mutex_);  // not given back by whoever ends the job
    if (!host_) return;
    if (host_->head().end_at_ns == 0) {
      // A rank that was late and went on is told of even where the job ends before the next beat.
      static_cast<void>(host_->beat({.now_ns = now_ns(), .on_time = true, .timeout_seconds = timeout_seconds_}));
      host_->own().end = end;
      return end == RankEnd::failed ? host_->tell_failure(now_ns()) : host_->report(now_ns());
    }
  }
  wait_for_end();
}

void StallWatch::Watcher::stop() noexcept {
  is_stopping_ = true;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
  if (thread_.joinable()) thread_.join();
}

void StallWatch::Watcher::run() {
  static_cast<void>(::pthread_setname_np(::pthread_self(), "watch"));  // as tools show it
  std::int64_t before = now_ns();
  while (!is_stopping_) {
    int other_hosts = -1;
    {
      const std::lock_guard lock(mutex_);
      if (host_) other_hosts = host_->descriptor();
    }
    std::array<pollfd, 3> sources{pollfd{wake_.get(), POLLIN, 0}, pollfd{signals_.descriptor(), POLLIN, 0},
                                  pollfd{other_hosts, POLLIN, 0}};
    static_cast<void>(::poll(sources.data(), sources.size(), kBeatMilliseconds));
    const std::int64_t now = now_ns();
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return;
    follow_signals(now);
    if (host_) beat(now, now - std::exchange(before, now) < in_ns(kBeatMilliseconds * 1e-3 + kLateBeatSeconds));
  }
}

void StallWatch::Watcher::beat(std::int64_t now, bool on_time) {
  if (has_signal_come_ && !signal_ns_ && has_signal_come_()) signal_ns_ = now;
  const auto verdict = host_->beat({.now_ns = now, .on_time = on_time, .timeout_seconds = timeout_seconds_});
  if (host_->head().end_at_ns != 0) end_process();
  if (!verdict) return;
  // What ends a job in its good time ends its processes.
  if (verdict->by_launcher && signal_ns_ && now - *signal_ns_ > in_ns(kExplainsSeconds)) return;
  if (host_->is_to_tell(now)) end_job(*verdict);
}

void StallWatch::Watcher::follow_signals(std::int64_t now) {
  const int signal = signals_.take();
  if (signal == 0) return;
  if (host_) {
    host_->own().end = RankEnd::signaled;
    host_->report(now);
    const auto gone = host_->find_gone(now);
    if (gone && host_->is_to_tell(now)) {
      write_stderr_line(fmt::format("{}: rank {} on {}: {}\n{}", program_name(), world_->rank(), world_->host(),
                                    gone->report.reason, gone->table));
      leave_note(gone->report);
    }
  }
  end_process_by(signal);
}

// The folder that it goes to may be what stands still.
void StallWatch::Watcher::leave_note(const StallReport& report) const {
  if (!note_) return;
  EndAction telling;
  telling.set([note = note_, report] { note(report); });
  telling.carry_out(kActionSeconds);
}

void StallWatch::Watcher::end_job(const Verdict& verdict) {
  const std::string how =
      verdict.by_launcher ? ""
                          : fmt::format("; the job ends with status {}, for nothing has moved for --stall-timeout {}",
                                        static_cast<int>(ExitStatus::hang), timeout_seconds_.load());
  write_stderr_line(fmt::format("{}: rank {} on {}: {}{}\n{}", program_name(), world_->rank(), world_->host(),
                                verdict.report.reason, how, verdict.table));
  leave_note(verdict.report);
  if (verdict.by_launcher) wait_for_launcher(kLauncherSeconds);
  host_->end_host(now_ns() + in_ns(HostWatch::kEndSeconds));
  for (int i = 0; i < kAnnouncements; ++i) {
    host_->announce_end();
    std::this_thread::sleep_for(kBetweenAnnouncements);
  }
  action_.carry_out(kActionSeconds);
  std::thread([world = world_] { world->abort(static_cast<int>(ExitStatus::hang)); }).detach();
  wait_for_launcher(kAbortSeconds);
  host_->kill_stopped();
  std::_Exit(static_cast<int>(ExitStatus::hang));
}

// Somebody else has told why.
void StallWatch::Watcher::end_process() {
  action_.carry_out(kActionSeconds);
  wait_for_launcher(static_cast<double>(host_->head().end_at_ns - now_ns()) * 1e-9);
  host_->kill_stopped();
  std::_Exit(static_cast<int>(ExitStatus::hang));
}

void StallWatch::Watcher::wait_for_launcher(double seconds) {
  for (const std::int64_t end = now_ns() + in_ns(seconds); now_ns() < end;) {
    pollfd signal{signals_.descriptor(), POLLIN, 0};
    static_cast<void>(::poll(&signal, 1, 10));
    if (const int come = signals_.take(); come != 0) end_process_by(come);
  }
}

StallWatch::StallWatch(Signals signals) : watcher_(std::make_unique<Watcher>(signals)) {}
StallWatch::~StallWatch() = default;

void StallWatch::begin(World& world, const StallWatchOptions& options, const Log& log) {
  watcher_->begin(world, options, log);
}
void StallWatch::set_timeout(double seconds) { watcher_->set_timeout(seconds); }
PlaceSlot& StallWatch::place_slot() { return watcher_->place_slot(); }
void StallWatch::notice_signals(std::function<bool()> has_come) { watcher_->notice_signals(std::move(has_come)); }
void StallWatch::tell_end_to(std::function<void(const StallReport&)> note) { watcher_->tell_end_to(std::move(note)); }
void StallWatch::before_end(std::function<void()> action) { watcher_->before_end(std::move(action)); }
bool StallWatch::is_ending() const noexcept { return watcher_->is_ending(); }
void StallWatch::fail() noexcept { watcher_->come_to(RankEnd::failed); }
void StallWatch::leave() noexcept {
  watcher_->come_to(RankEnd::left);
  watcher_->stop();
}

}  // namespace tutti
