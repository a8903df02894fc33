#pragma once
// The table of commands, with their arguments and exit statuses. All are collective and print to stdout on rank 0.
// commands.cpp says what each does, as the help does.

#include "tutti/base/error.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/folder_lock.hpp"
#include "tutti/watch/stall_watch.hpp"

#include "command_line.hpp"
#include "option_table.hpp"
#include "streams_and_signals.hpp"

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// The process's watch and signals, which a command borrows, and the folder and reason that a training sets for the end
// of the process: an early end is recorded in folder/exit.json, by the first rank to fail or, if the run was stopped,
// by rank 0.
struct CommandContext {
  OwnedFolder folder{};                  // empty: no exit.json is written
  std::string reason{};                  // why the run was stopped
  StallWatch* watch = nullptr;           // borrowed; null: stalled ranks are not detected
  const StopSignals* signals = nullptr;  // borrowed; a training stops on them
};

// Runs `work` on this rank and returns the process's exit status. Every failure is reported once, and no rank is left
// waiting. If all ranks raise the same error, rank 0 prints it and all end in order. If this rank alone fails, it
// prints the error with its rank and host and aborts the job. Collective.
int run_and_report_errors(World& world, const CommandContext& context, const std::function<ExitStatus()>& work);

// Trains. Saves checkpoints if --out names a folder, and sets context.folder to it. Stops on context.signals.
ExitStatus train_command(World& world, const Invocation& invocation, CommandContext& context);
// Pre-flight check: finds without training all problems that would make a run with these options fail or slow, with a
// remedy for each. Returns negative_result if the run would fail.
ExitStatus check_command(World& world, const Invocation& invocation, CommandContext& context);
// The check without MPI, after MPI could not be started because of `failure`. The first rank reports the failure, and
// checks everything that a single rank can check. Returns the process's exit status.
int check_alone(const Invocation& invocation, const Error& failure);

ExitStatus eval_command(World& world, const Invocation& invocation, CommandContext& context);
ExitStatus predict_command(World& world, const Invocation& invocation, CommandContext& context);
ExitStatus inspect_command(World& world, const Invocation& invocation, CommandContext& context);
// Compares two runs or checkpoints. Returns negative_result if they differ.
ExitStatus diff_command(World& world, const Invocation& invocation, CommandContext& context);
ExitStatus data_convert(World& world, const Invocation& invocation, CommandContext& context);
ExitStatus data_info(World& world, const Invocation& invocation, CommandContext& context);
ExitStatus data_show(World& world, const Invocation& invocation, CommandContext& context);
// Shows one data-parallel step, written by hand with the public classes. Returns negative_result if values differ that
// must be equal.
ExitStatus tour_command(World& world, const Invocation& invocation, CommandContext& context);
// Looks for cores and GPUs of these hosts that compute wrong results, of which some may be slow, too. Returns diverged
// if it found any.
ExitStatus screen_command(World& world, const Invocation& invocation, CommandContext& context);

ExitStatus bench_allreduce(World& world, const Invocation& invocation, CommandContext& context);
ExitStatus bench_checkpoint(World& world, const Invocation& invocation, CommandContext& context);
ExitStatus bench_exchange(World& world, const Invocation& invocation, CommandContext& context);
ExitStatus bench_input(World& world, const Invocation& invocation, CommandContext& context);
ExitStatus bench_scaling(World& world, const Invocation& invocation, CommandContext& context);
ExitStatus bench_step(World& world, const Invocation& invocation, CommandContext& context);

// Whether a stall watch ends the job if ranks stall: never for commands that read or write data, whose duration is
// unknown, and only under a launcher for measurements.
enum class StallWatchUse { never, launched, always };

struct Command {
  const char* name;  // as users write it: "bench step"
  const char* help;
  StallWatchUse stall_watch;
  ExitStatus (*run)(World&, const Invocation&, CommandContext&);
  unsigned takers;                                  // of the options of a run
  std::vector<Option> (*own_options)(Invocation&);  // all others, stored in the invocation
};

// The default command is the first.
std::span<const Command> commands();

// Companions are commands in separate programs, mostly in Python, which are found like git's: `trainer data fetch` runs
// trainer-data-fetch from the folder libexec/tutti next to the program or its library, or from the installation.

struct Companion {
  std::string name;  // "data fetch"
  std::filesystem::path program;
};

// That of this process.
std::filesystem::path program_path();
// Empty if there is none.
std::filesystem::path companions_folder();
// All of them, sorted by name.
std::vector<Companion> find_companions();
// The first line of its docstring, without the name and colon at its beginning.
std::string summary_of(const Companion& companion);

// Replaces this process by the program, which gets the path of this process in TUTTI_TRAINER and its argv[0] in
// TUTTI_CALL. Companions run on one rank: on other ranks than 0, returns `done`. To be called before MPI is
// initialized. Throws an error that names what is missing.
ExitStatus exec_companion(const std::filesystem::path& program, const std::vector<std::string>& arguments);

}  // namespace tutti
