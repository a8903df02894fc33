#pragma once
// The commands of the program, each of which is one row; what they are given, and how they end. All are collective and
// print on rank 0's stdout.

#include "tutti/base/error.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/folder_lock.hpp"
#include "tutti/watch/stall_watch.hpp"

#include "command_line.hpp"
#include "option_table.hpp"
#include "process.hpp"

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tutti {

// Where an early end is recorded besides stderr: the first rank to fail, or rank 0 of a run that was stopped, leaves
// folder/exit.json. Empty: nowhere.
struct EndRecord {
  OwnedFolder folder{};
  std::string reason{};                  // of a run that was stopped
  StallWatch* watch = nullptr;           // borrowed; null: nobody watches for stalled ranks
  const StopSignals* signals = nullptr;  // borrowed; of a training that stops for them
};

// Does `work` on this rank and returns the process's exit status: every failure is reported once, with its status, in a
// way that leaves no rank behind. An error that all ranks raise alike is printed by rank 0 and all leave in order; one
// that this rank met alone is printed here, with rank and host, and the whole job is ended. Collective.
int run_guarded(World& world, const EndRecord& record, const std::function<ExitStatus()>& work);

// Trains. Keeps checkpoints where --out names a folder, which record.folder becomes, and stops for the signals of the
// record.
ExitStatus train_command(World& world, const Invocation& invocation, EndRecord& record);
// Finds without training everything that would make a training with these options fail or slow, each with its remedy.
// The answer is no if it will fail.
ExitStatus check_command(World& world, const Invocation& invocation, EndRecord& record);
// For ranks that could not find each other, and why: the first one prints it, and checks what one rank can. Returns the
// process's exit status.
int check_alone(const Invocation& invocation, const Error& failure);

// Evaluates a checkpoint on a data set. The network, image size and normalisation are the checkpoint's.
ExitStatus eval_command(World& world, const Invocation& invocation, EndRecord& record);
// Classifies images with a checkpoint, with the same rows on any number of ranks.
ExitStatus predict_command(World& world, const Invocation& invocation, EndRecord& record);
// Shows what a checkpoint holds, after verifying it, and which of a folder's checkpoints are good.
ExitStatus inspect_command(World& world, const Invocation& invocation, EndRecord& record);
// Compares two runs or checkpoints. The answer is no if they differ.
ExitStatus diff_command(World& world, const Invocation& invocation, EndRecord& record);
// Writes any data set as one HDF5 file, describes one, and draws what the network gets of one.
ExitStatus data_convert(World& world, const Invocation& invocation, EndRecord& record);
ExitStatus data_info(World& world, const Invocation& invocation, EndRecord& record);
ExitStatus data_show(World& world, const Invocation& invocation, EndRecord& record);
// Shows one data-parallel step, written by hand with the public classes. The answer is no if values differ that must be
// equal.
ExitStatus tour_command(World& world, const Invocation& invocation, EndRecord& record);

// Time and bus bandwidth of all-reduces by message size, ours and the MPI library's.
ExitStatus bench_allreduce(World& world, const Invocation& invocation, EndRecord& record);
// What saving costs, during training, by itself and against a plain write of the same bytes; and loading.
ExitStatus bench_checkpoint(World& world, const Invocation& invocation, EndRecord& record);
// Time of exchange and update, bytes sent and memory used, by exchange and by rank count.
ExitStatus bench_exchange(World& world, const Invocation& invocation, EndRecord& record);
// Images/s of preparing batches by the number of readers, of the compute, and of both at once.
ExitStatus bench_input(World& world, const Invocation& invocation, EndRecord& record);
// Time per step, images/s and efficiency, strong and weak, by rank count.
ExitStatus bench_scaling(World& world, const Invocation& invocation, EndRecord& record);
// Time per step, images/s, memory and start-up of a training on all ranks; the slowest rank counts.
ExitStatus bench_step(World& world, const Invocation& invocation, EndRecord& record);

// Whether a watch ends the job when its ranks stall. Reading and writing of data takes as long as it takes, and so does
// what a process measures by itself.
enum class Watched { never, launched, always };

struct Command {
  const char* words;  // as users write it: "bench step"
  const char* does;
  Watched watched;
  ExitStatus (*run)(World&, const Invocation&, EndRecord&);
  bool (*takes)(const RunOption&);                  // which options of a run
  void (*add_own_options)(CLI::App&, Invocation&);  // besides those
};

// The default one first.
std::span<const Command> commands();

// Commands that are programs of their own, mostly in Python, found as git finds its commands: `trainer data fetch` runs
// trainer-data-fetch out of the folder libexec/tutti beside the program or its library, or where it is installed.

struct Companion {
  std::string words;  // "data fetch"
  std::filesystem::path program;
};

// Empty where there is none.
std::filesystem::path companions_folder();
// All of them, by their words.
std::vector<Companion> find_companions();
// The first line of its documentation, without the words and the colon that it begins with.
std::string what_it_does(const Companion& companion);

// Replaces this process by the program, which finds this one's path in TUTTI_TRAINER, how it was called in TUTTI_CALL,
// and `input` in its stdin unless that is empty. Companions work alone: returns `done` on ranks other than 0. To be
// called before MPI is initialised. Throws an error that says what is missing.
ExitStatus become_companion(const std::filesystem::path& program, const std::vector<std::string>& words,
                            const std::string& input);

}  // namespace tutti
