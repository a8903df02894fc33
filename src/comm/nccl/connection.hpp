#pragma once
// An NCCL communicator, with timeouts and abort.
//
// Ranks connect through a non-blocking communicator, so that a rank that never arrives causes a timeout. Collectives
// use a blocking communicator that is split off from it: a non-blocking one would create a thread for each collective,
// and the caller would poll until that thread has enqueued it. A call can block where NCCL first connects ranks for a
// kind of collective, or registers memory. If a rank does not arrive there, only the stall watch ends the job.

#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"
#include "tutti/comm/nccl_library.hpp"

#include <nccl.h>

#include <functional>
#include <source_location>
#include <string>

namespace tutti::nccl {

void check(ncclResult_t result, std::source_location where = std::source_location::current());

// The library's version, as NCCL_VERSION() computes it.
int version_number();
// A version as in "2.29.7".
std::string text_of_version(int version);

// NCCL's error text, and how to get more details.
std::string text_of(ncclResult_t result);

// Unlike ncclCommDestroy, ncclCommAbort does not wait for other ranks, so a destructor may call it.
struct AbortCommunicator {
  void operator()(ncclComm_t communicator) const noexcept { static_cast<void>(ncclCommAbort(communicator)); }
};

class Connection {
 public:
  // All ranks agree on the success of each step, so that a failing rank does not leave the others waiting. Collective.
  Connection(World& world, const NcclOptions& options);

  int rank() const { return rank_; }
  int size() const { return size_; }
  double deadline_seconds() const { return deadline_seconds_; }
  // Whether all ranks can register memory.
  bool registers_memory() const { return registers_memory_; }
  // Null after abort().
  ncclComm_t native() const { return communicator_.get(); }

  // Throws if a call that enqueues collectives failed.
  void require_success(ncclResult_t result, const std::string& where) const;
  // Throws if NCCL reports an asynchronous failure, of another rank or of the network.
  void check_async_error(const std::string& where) const;
  Error timeout_error(const std::string& where) const;
  void abort() noexcept { communicator_.reset(); }

 private:
  using Handle = UniqueHandle<ncclComm_t, AbortCommunicator>;

  // Waits until a non-blocking call, whose result is passed, has completed in NCCL's thread, whether or not it has
  // returned success already. Throws on failure or timeout.
  void wait_until_done(ncclComm_t communicator, ncclResult_t result, const std::string& where) const;
  // Registers a little memory with a communicator that does not block, and ends it. If a rank cannot, the others stop
  // waiting for it, and rank 0 warns. Collective.
  bool try_to_register(World& world, Handle communicator, const std::function<void(const std::string&)>& warn) const;
  Error failed(const std::string& where, ncclResult_t result) const;

  int rank_;
  int size_;
  std::string who_;  // "rank 1 on node3"
  double deadline_seconds_;
  Handle communicator_;  // blocking
  bool registers_memory_ = false;
};

// A group of NCCL calls.
class Group {
 public:
  Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();

  void add(ncclResult_t result);
  // Returns the first failure.
  ncclResult_t end();

 private:
  bool open_ = true;
  ncclResult_t result_ = ncclSuccess;
};

}  // namespace tutti::nccl
