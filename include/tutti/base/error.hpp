#pragma once
// The exit statuses, and the only exception type, which names the source of the failure, a message for the user and the
// line that threw it. Library code throws; the program, or the stall watch, ends the process.

#include <source_location>
#include <stdexcept>
#include <string>

namespace tutti {

// The exit statuses of the program; docs/exit-status.md explains them.
enum class ExitStatus : int {
  done = 0,
  negative_result = 1,
  usage = 64,
  bad_input = 65,
  no_checkpoint = 66,
  internal = 70,
  cannot_save = 73,
  input_io = 74,
  stopped = 75,
  hang = 86,
  diverged = 87,
  not_finite = 88,
};

enum class ErrorSource {
  usage,       // wrong command line or configuration file
  input,       // malformed data, a model that does not fit, ranks that disagree
  checkpoint,  // no usable checkpoint
  save,        // a file could not be written
  io,          // a file could not be read
  hang,        // other ranks did not reach a collective within the time allowed
  diverged,    // replicas that should be equal are not
  not_finite,  // loss or weights are no longer finite
  gpu_memory,  // a GPU has no room for a run of this size
  internal,    // a bug in this program
  mpi,
  hdf5,
  cuda,
  cudnn,
  nccl,
};

// Whether this rank alone raised the error, or all ranks raise the same one at the same point.
enum class ErrorScope { this_rank, all_ranks };

class Error : public std::runtime_error {
 public:
  Error(ErrorSource source, const std::string& message, std::source_location where = std::source_location::current());

  ErrorSource source() const noexcept { return source_; }
  ErrorScope scope() const noexcept { return scope_; }
  const std::source_location& where() const noexcept { return where_; }
  ExitStatus exit_status() const noexcept;

  // The same error, marked as raised by all ranks: one of them reports it and none needs to be stopped.
  Error on_all_ranks() const;

  // The message, with the source location for errors that are not the user's.
  std::string describe() const;

 private:
  ErrorSource source_;
  ErrorScope scope_ = ErrorScope::this_rank;
  std::source_location where_;
};

}  // namespace tutti
