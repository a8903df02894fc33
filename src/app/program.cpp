#include "tutti/app/program.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/base/process.hpp"
#include "tutti/comm/launcher.hpp"

#include "assemble.hpp"
#include "commands.hpp"
#include "output.hpp"
#include "run_folder.hpp"
#include "streams_and_signals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <string>

namespace tutti {
namespace {

constexpr double kMinStartSeconds = 60;  // before a start that hangs is ended

ExitRecord record_of(const World& world, ExitStatus status, const std::string& reason) {
  return {.status = status, .rank = world.rank(), .host = world.host(), .reason = reason};
}

int abort_job(World& world, const CommandContext& context, ExitStatus status, const std::string& reason) {
  const std::string who = world.size() > 1 ? fmt::format("rank {} on {}: ", world.rank(), world.host()) : "";
  if (context.watch != nullptr) context.watch->report_failure();
  write_stderr_line(fmt::format("{}: {}{}", program_name(), who, reason));
  write_exit_record(context.folder, record_of(world, status, reason));
  world.abort(static_cast<int>(status));
  return static_cast<int>(status);  // not reached, but GCC ignores [[noreturn]] of virtual functions
}

void close(World& world, const CommandContext& context) {
  world.close();
  if (context.watch != nullptr) context.watch->finish();
}

int end_all_ranks(World& world, const CommandContext& context, ExitStatus status, const std::string& reason) {
  if (world.rank() == 0) {
    write_stderr_line(fmt::format("{}: {}", program_name(), reason));
    write_exit_record(context.folder, record_of(world, status, reason));
  }
  try {
    close(world, context);
  } catch (const std::exception&) {
    world.abort(static_cast<int>(status));
  }
  return static_cast<int>(status);
}

bool is_watched(const Command& command) {
  return command.stall_watch == StallWatchUse::always ||
         (command.stall_watch == StallWatchUse::launched && started_by_launcher());
}

// Without a launcher, SIGTERM cannot mean that another rank has ended.
StallWatch::Signals watched_signals(bool has_stop_signals) {
  return has_stop_signals || !started_by_launcher() ? StallWatch::Signals::ignore
                                                    : StallWatch::Signals::report_then_die;
}

// Acknowledges a signal immediately on rank 0, since a step and a save may take a while. Prints nothing if the job is
// already failing: then the signal comes from the launcher, and nothing will be saved.
class SignalNotice {
 public:
  explicit SignalNotice(const Invocation& invocation)
      : saves_(!invocation.run.output.folder.empty()), trains_(invocation.command_name == "train") {}

  // Borrowed until the next call; may be null.
  void set_watch(const StallWatch* watch) {
    const std::lock_guard lock(mutex_);
    watch_ = watch;
  }
  void operator()(int signal) {
    if (launcher_rank() != 0) return;
    {
      const std::lock_guard lock(mutex_);
      if (watch_ != nullptr && watch_->is_ending()) return;
    }
    write_stderr_line(fmt::format("[rank 0 {}] {}: {}", host_name(), signal_name(signal), text(signal)));
  }

 private:
  const char* text(int signal) const {
    if (!trains_) return "the images in progress are finished, and the conversion stops";
    if (!saves_) return "the ranks finish their step and stop";
    // Open MPI's launcher turns Ctrl-C into SIGTERM.
    const bool may_be_killed = signal == SIGTERM && std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
    return may_be_killed ? "the ranks may not be able to save: after Ctrl-C, mpirun of Open MPI kills them within a "
                           "second (use tools/run instead: it waits until they have saved); otherwise they finish "
                           "their step, save and stop"
                         : "the ranks finish their step, save and stop";
  }

  bool saves_;
  bool trains_;
  std::mutex mutex_;
  const StallWatch* watch_ = nullptr;
};

// Training stops after a step, and saves if it has a folder; a conversion removes or keeps what it has written.
bool handles_signals(const Invocation& invocation) {
  return (invocation.command_name == "train" && !invocation.run.dry_run) || invocation.command_name == "data convert";
}

void begin_watch(StallWatch& watch, World& world, const RunConfig& config) {
  watch.begin(world, config.watch, Log(world.rank(), world.host(), config.output.quiet));
}

// Ranks with different commands would wait for each other forever.
void refuse_other_commands(World& world, const Invocation& invocation) {
  const auto called = all_gather_text(world, invocation.command_name);
  const auto other = std::ranges::find_if(called, [&](const std::string& each) { return each != called.front(); });
  if (other == called.end()) return;
  const auto rank = other - called.begin();
  const std::string host = broadcast_text(world, world.host(), static_cast<int>(rank));
  throw Error(ErrorSource::input, fmt::format("rank {} on host {} was started with {}, and rank 0 with {}: give all "
                                              "ranks of a job the same command",
                                              rank, host, *other, called.front()))
      .on_all_ranks();
}

// An output that has the name of a checkpoint, or of what belongs to it, is a mistake.
void refuse_outputs(const Invocation& invocation) {
  refuse_to_replace("--json", invocation.json);
  refuse_to_replace("--csv", invocation.predict.csv);
  refuse_to_replace("--trace", invocation.run.output.trace);
  refuse_to_replace("--sample-log", invocation.run.output.sample_log);
  refuse_to_replace("--seal", invocation.inspect.seal);
}

bool only_prints(const Invocation& invocation) { return invocation.command == nullptr && invocation.companion.empty(); }

// Without a launcher, or if MPI cannot start, for example under the launcher of another MPI library.
int print_without_mpi(const Invocation& invocation) {
  const auto world = make_solo_world();
  return run_and_report_errors(*world, {}, [&] {
    if (launcher_rank() == 0) fmt::print("{}\n", invocation.text);
    return ExitStatus::done;
  });
}

// By default CUDA loads a kernel at its first launch, which may wait until the device is idle: a rank would wait for a
// collective in which others wait for it. CUDA reads the variable when it starts, perhaps within MPI's start.
void load_kernels_eagerly() {
  constexpr int kKeepTheUsers = 0;
  const bool has_other_ranks = started_by_launcher() && launched_size().value_or(2) > 1;
  if (has_other_ranks) ::setenv("CUDA_MODULE_LOADING", "EAGER", kKeepTheUsers);
}

// To be called before other threads start, which may read the environment.
void prepare_process() {
  open_standard_streams();
  block_stop_signals();
  std::signal(SIGXFSZ, SIG_IGN);  // writes beyond ulimit -f fail with an error instead
  load_kernels_eagerly();
}

}  // namespace

int run_and_report_errors(World& world, const CommandContext& context, const std::function<ExitStatus()>& work) {
  try {
    const ExitStatus status = work();
    if (status == ExitStatus::stopped) return end_all_ranks(world, context, status, context.reason);
    run_or_throw_on_all(world, require_stdout);
    close(world, context);
    return static_cast<int>(status);
  } catch (const Error& error) {
    const auto end = error.scope() == ErrorScope::this_rank ? abort_job : end_all_ranks;
    return end(world, context, error.exit_status(), error.describe());
  } catch (const std::bad_alloc&) {
    return abort_job(world, context, ExitStatus::bad_input,
                     "out of memory: use fewer ranks on this host or a smaller --batch-size");
  } catch (const std::exception& error) {
    return abort_job(world, context, ExitStatus::internal, error.what());
  }
}

int run_program(int argc, const char* const* argv, const Extensions& extensions) {
  prepare_process();
  Invocation invocation;
  std::optional<Error> parse_error;
  try {
    invocation = parse_command_line(argc, argv, &extensions);
  } catch (const Error& error) {
    parse_error = error;
  } catch (const std::exception& error) {
    parse_error = Error(ErrorSource::usage, error.what());
  }
  try {
    if (!parse_error && !invocation.companion.empty()) {
      return static_cast<int>(exec_companion(invocation.companion, invocation.arguments));
    }
    // Under a launcher, other ranks may have other commands, and wait for this one.
    if (!parse_error && only_prints(invocation) && !started_by_launcher()) {
      unblock_stop_signals();
      return print_without_mpi(invocation);
    }
    SignalNotice signal_notice(invocation);
    std::optional<StopSignals> signals;  // outlives MPI, whose start and end may take long
    if (!parse_error && handles_signals(invocation)) {
      signals.emplace([&signal_notice](int signal) { signal_notice(signal); });
    } else {
      unblock_stop_signals();
    }
    std::optional<StallWatch> watch;  // outlives MPI, too
    if (invocation.command != nullptr && is_watched(*invocation.command))
      watch.emplace(watched_signals(signals.has_value()),
                    std::max(kMinStartSeconds, invocation.run.watch.timeout_seconds));
    if (watch && signals) watch->set_signal_check([&signals] { return signals->was_received(SIGTERM); });
    signal_notice.set_watch(watch ? &*watch : nullptr);
    const struct ClearWatchOnExit {
      SignalNotice& signal_notice;
      ~ClearWatchOnExit() { signal_notice.set_watch(nullptr); }
    } clear_watch{signal_notice};  // before the watch is destroyed
    invocation.world_begun_at = seconds_since_process_start();
    const auto world = make_world();
    invocation.world_made_at = seconds_since_process_start();
    CommandContext context;
    context.watch = watch ? &*watch : nullptr;
    context.signals = signals ? &*signals : nullptr;
    return run_and_report_errors(*world, context, [&] {
      run_or_throw_on_all(*world, [&] {
        if (parse_error) throw *parse_error;
        if (world->rank() == 0) refuse_outputs(invocation);
      });
      refuse_other_commands(*world, invocation);
      if (watch) begin_watch(*watch, *world, invocation.run);
      if (invocation.command != nullptr) return invocation.command->run(*world, invocation, context);
      if (world->rank() == 0) fmt::print("{}\n", invocation.text);
      return ExitStatus::done;
    });
  } catch (const Error& error) {
    if (!parse_error && invocation.command_name == "check") return check_alone(invocation, error);
    if (!parse_error && only_prints(invocation)) return print_without_mpi(invocation);
    write_stderr_line(fmt::format("{}: {}", program_name(), error.describe()));
    return static_cast<int>(error.exit_status());
  } catch (const std::exception& error) {
    write_stderr_line(fmt::format("{}: {}", program_name(), error.what()));
    return static_cast<int>(ExitStatus::internal);
  }
}

}  // namespace tutti
