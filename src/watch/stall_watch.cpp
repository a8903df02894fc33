#include "tutti/watch/stall_watch.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/comm/launcher.hpp"

#include "rank_watcher.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <future>
#include <utility>

namespace tutti {
namespace {

constexpr int kTickMilliseconds = 100;
constexpr double kLateTickSeconds = 1;  // after a later tick the whole machine may have been suspended

// The launcher has this long to end this process after another one died. Then this process calls MPI_Abort, and the
// launcher has kAbortSeconds more.
constexpr double kLauncherSeconds = 2;
constexpr double kAbortSeconds = 1;
constexpr double kCallbackSeconds = 1;
constexpr std::chrono::seconds kMajorityFirst{3};  // by which the record of the side with fewer ranks comes later
// Announcements reach other hosts before the effects of the end do, and are repeated because datagrams may be lost.
constexpr int kAnnouncements = 3;
constexpr std::chrono::milliseconds kBetweenAnnouncements{30};

// If a process died within this time after a termination signal, its death may be the reason for the signal. If it died
// later, the signal ended it.
constexpr double kSignalGraceSeconds = 0.5;

constexpr std::int64_t in_ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

// Blocks the termination signals in this thread and in those that it starts. Signal handlers would be unsafe: compiled
// kernels of the CPU library temporarily use the stack pointer for other data.
Descriptor block_signals() {
  sigset_t awaited;
  sigemptyset(&awaited);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    if (!is_ignored(signal)) sigaddset(&awaited, signal);
  }
  Descriptor signals(::signalfd(-1, &awaited, SFD_NONBLOCK | SFD_CLOEXEC));
  const int failure = signals ? pthread_sigmask(SIG_BLOCK, &awaited, nullptr) : errno;
  if (failure == 0) return signals;
  throw Error(ErrorSource::internal, fmt::format("cannot block signals: {}", std::strerror(failure)));
}

// 0: none has arrived. Never blocks.
int next_signal(const Descriptor& signals) {
  signalfd_siginfo info{};
  if (!signals || ::read(signals.get(), &info, sizeof info) != sizeof info) return 0;
  return static_cast<int>(info.ssi_signo);
}

// Runs the callback in its own detached thread, because it may hang, and waits for at most kCallbackSeconds. Its
// exceptions stay in the task: the process must end nevertheless.
void run_with_timeout(std::function<void()> callback) {
  std::packaged_task<void()> task(std::move(callback));
  const std::future<void> done = task.get_future();
  std::thread(std::move(task)).detach();
  done.wait_for(std::chrono::duration<double>(kCallbackSeconds));
}

[[noreturn]] void wait_forever() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace

void validate(const StallWatchOptions& options) {
  chosen_interfaces(options.interface);
  if (options.timeout_seconds >= 1 && options.timeout_seconds <= 1e6) return;
  throw Error(ErrorSource::usage, fmt::format("--stall-timeout {}: must be 1 to 1000000 seconds; a rank publishes its "
                                              "state every {} s, and a busy machine may delay that for much longer",
                                              options.timeout_seconds, kTickMilliseconds * 1e-3));
}

StallWatch::StallWatch(Signals signals, double start_seconds)
    : signals_(signals == Signals::report_then_die ? block_signals() : Descriptor()),
      wake_(::eventfd(0, EFD_CLOEXEC)),
      launcher_(started_by_launcher() ? ::getppid() : 0),
      start_seconds_(start_seconds),
      thread_([this] { run(); }) {}

StallWatch::~StallWatch() { stop(); }

void StallWatch::begin(World& world, const StallWatchOptions& options, const Log& log) {
  run_or_throw_on_all(world, [&] { validate(options); });
  set_timeout(options.timeout_seconds);
  std::unique_ptr<RankWatcher> host;
  try {
    host = std::make_unique<RankWatcher>(world, options.interface, log);
  } catch (const Error& error) {
    if (error.source() == ErrorSource::usage) throw;
    if (world.rank() == 0) log.warn(fmt::format("the stall watch is off: {}", error.what()));
    const std::lock_guard lock(mutex_);
    launcher_ = 0;  // MPI has started
    return;
  }
  const std::lock_guard lock(mutex_);
  watcher_ = std::move(host);
  world_ = &world;
}

void StallWatch::set_timeout(double seconds) { timeout_seconds_ = std::max(1.0, seconds); }

StatusSlot& StallWatch::status_slot() { return watcher_ ? watcher_->own().status : own_status_; }

void StallWatch::set_signal_check(std::function<bool()> was_received) {
  const std::lock_guard lock(mutex_);
  signal_check_ = std::move(was_received);
}

void StallWatch::set_job_end_callback(std::function<void(const StallReport&)> callback) {
  const std::lock_guard lock(mutex_);
  job_end_callback_ = std::move(callback);
}

void StallWatch::set_process_end_callback(std::function<void()> callback) {
  const std::lock_guard lock(process_end_callback_->mutex);
  process_end_callback_->run = std::move(callback);
}

// A tick takes far less than 50 ms; a thread that holds the lock longer is ending the job.
bool StallWatch::is_ending() const noexcept {
  for (int attempt = 0; attempt < 50; ++attempt) {
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) return watcher_ && watcher_->is_ending();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void StallWatch::end(bool failed) noexcept {
  {
    const std::lock_guard lock(mutex_);  // the thread that ends the job never releases it
    if (!watcher_) return;
    if (watcher_->head().end_at_ns == 0) {
      // Reports a rank that was late and has recovered, even if the job ends before the next tick.
      static_cast<void>(watcher_->tick({.now_ns = now_ns(), .on_time = true, .timeout_seconds = timeout_seconds_}));
      watcher_->own().end = failed ? RankEnd::failed : RankEnd::finished;
      return failed ? watcher_->report_failure(now_ns()) : watcher_->report(now_ns());
    }
  }
  wait_forever();
}

void StallWatch::stop() noexcept {
  is_stopping_ = true;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
  if (thread_.joinable()) thread_.join();
}

void StallWatch::run() {
  static_cast<void>(::pthread_setname_np(::pthread_self(), "watch"));  // the name that top and gdb show
  std::int64_t before = now_ns();
  std::int64_t start_lasted_ns = 0;  // without the time in which the machine was suspended
  while (!is_stopping_) {
    int other_hosts = -1;
    {
      const std::lock_guard lock(mutex_);
      if (watcher_) other_hosts = watcher_->descriptor();
    }
    std::array<pollfd, 3> sources{pollfd{wake_.get(), POLLIN, 0}, pollfd{signals_.get(), POLLIN, 0},
                                  pollfd{other_hosts, POLLIN, 0}};
    static_cast<void>(::poll(sources.data(), sources.size(), kTickMilliseconds));
    const std::int64_t now = now_ns();
    const std::int64_t elapsed = now - std::exchange(before, now);
    const bool on_time = elapsed < in_ns(kTickMilliseconds * 1e-3 + kLateTickSeconds);
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return;
    handle_signals(now);
    if (watcher_) {
      tick(now, on_time);
    } else {
      if (on_time) start_lasted_ns += elapsed;
      end_hanging_start(start_lasted_ns);
    }
  }
}

// A rank that waits for its launcher, or for another rank, in MPI_Init or until all are watched, would wait forever.
void StallWatch::end_hanging_start(std::int64_t lasted_ns) const {
  if (launcher_ == 0) return;
  std::string why;
  if (::getppid() != launcher_) {
    why = fmt::format("{} has ended while MPI was starting", launcher_name());
  } else if (lasted_ns > in_ns(start_seconds_)) {
    why = fmt::format(
        "rank {} on {}: not all ranks have started after {:.0f} s, so this one ends with status {}: look "
        "for a rank or host that is lost; a start that takes longer needs a larger --stall-timeout",
        launcher_rank(), host_name(), start_seconds_, static_cast<int>(ExitStatus::hang));
  }
  if (why.empty()) return;
  write_stderr_line(fmt::format("{}: {}", program_name(), why));
  std::_Exit(static_cast<int>(ExitStatus::hang));
}

void StallWatch::tick(std::int64_t now, bool on_time) {
  if (signal_check_ && !signal_ns_ && signal_check_()) signal_ns_ = now;
  const auto end = watcher_->tick({.now_ns = now, .on_time = on_time, .timeout_seconds = timeout_seconds_});
  // Another host or rank has reported the reason.
  if (const std::int64_t at_ns = watcher_->head().end_at_ns; at_ns != 0) end_process(at_ns);
  if (!end) return;
  // The termination signal that arrived here has probably ended the process that is gone, too.
  if (end->launcher_ends_job && signal_ns_ && now - *signal_ns_ > in_ns(kSignalGraceSeconds)) return;
  if (watcher_->claim_end(now)) end_job(*end);
}

void StallWatch::handle_signals(std::int64_t now) {
  const int signal = next_signal(signals_);
  if (signal == 0) return;
  if (watcher_) {
    watcher_->own().end = RankEnd::signaled;
    watcher_->report(now);
    const auto gone = watcher_->find_gone(now);
    if (gone && watcher_->claim_end(now)) {
      write_stderr_line(fmt::format("{}: rank {} on {}: {}\n{}", program_name(), world_->rank(), world_->host(),
                                    gone->report.reason, gone->table));
      if (!gone->is_of_minority) run_job_end_callback(gone->report);
    }
  }
  raise_default(signal);
}

// The callback may hang: the file system to which it writes may be the cause of the stall.
void StallWatch::run_job_end_callback(const StallReport& report) const {
  if (job_end_callback_) run_with_timeout([callback = job_end_callback_, report] { callback(report); });
}

void StallWatch::run_process_end_callback() const {
  run_with_timeout([callback = process_end_callback_] {
    const std::lock_guard lock(callback->mutex);
    if (callback->run) callback->run();
  });
}

void StallWatch::end_job(const JobEnd& end) {
  const std::string how = end.launcher_ends_job
                              ? ""
                              : fmt::format("; the job ends with status {}: no progress for --stall-timeout {}",
                                            static_cast<int>(ExitStatus::hang), timeout_seconds_.load());
  write_stderr_line(fmt::format("{}: rank {} on {}: {}{}\n{}", program_name(), world_->rank(), world_->host(),
                                end.report.reason, how, end.table));
  if (end.is_of_minority) std::this_thread::sleep_for(kMajorityFirst);
  run_job_end_callback(end.report);
  if (end.launcher_ends_job) wait_for_launcher(kLauncherSeconds);
  watcher_->end_host(now_ns() + in_ns(RankWatcher::kEndSeconds));
  for (int i = 0; i < kAnnouncements; ++i) {
    watcher_->announce_end();
    std::this_thread::sleep_for(kBetweenAnnouncements);
  }
  run_process_end_callback();
  std::thread([world = world_] { world->abort(static_cast<int>(ExitStatus::hang)); }).detach();
  wait_for_launcher(kAbortSeconds);
  watcher_->kill_stopped_processes();
  std::_Exit(static_cast<int>(ExitStatus::hang));
}

void StallWatch::end_process(std::int64_t at_ns) {
  run_process_end_callback();
  wait_for_launcher(static_cast<double>(at_ns - now_ns()) * 1e-9);
  watcher_->kill_stopped_processes();
  std::_Exit(static_cast<int>(ExitStatus::hang));
}

void StallWatch::wait_for_launcher(double seconds) {
  for (const std::int64_t end = now_ns() + in_ns(seconds); now_ns() < end;) {
    pollfd signal{signals_.get(), POLLIN, 0};
    static_cast<void>(::poll(&signal, 1, 10));
    if (const int arrived = next_signal(signals_); arrived != 0) raise_default(arrived);
  }
}

}  // namespace tutti
