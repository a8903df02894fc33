#pragma once
// A non-blocking NCCL communicator, with timeouts and abort.

#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"
#include "tutti/comm/nccl_library.hpp"

#include <nccl.h>

#include <source_location>
#include <string>

namespace tutti::nccl {

void check(ncclResult_t result, std::source_location where = std::source_location::current());

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
  // Null after abort().
  ncclComm_t native() const { return communicator_.get(); }

  // Waits until a non-blocking call, whose result is passed, has completed in NCCL's thread; this includes enqueueing a
  // collective on a stream. Until then the communicator and the stream must not be used. Throws on failure or timeout.
  void wait_until_done(ncclResult_t result, const std::string& where) const {
    wait_until_done(native(), result, where);
  }
  // Throws if NCCL reports an asynchronous failure, of another rank or of the network.
  void check_async_error(const std::string& where) const;
  Error timeout_error(const std::string& where) const;
  void abort() noexcept { communicator_.reset(); }

 private:
  using Handle = UniqueHandle<ncclComm_t, AbortCommunicator>;

  void wait_until_done(ncclComm_t communicator, ncclResult_t result, const std::string& where) const;
  Error failed(const std::string& where, ncclResult_t result) const;

  int rank_;
  int size_;
  std::string who_;  // "rank 1 on node3"
  double deadline_seconds_;
  Handle communicator_;
};

// A group of NCCL calls. Collects the results of the calls; the end of the group may return ncclInProgress.
class Group {
 public:
  Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();

  void add(ncclResult_t result);
  // Returns the result to pass to wait_until_done().
  ncclResult_t end();

 private:
  bool open_ = true;
  ncclResult_t result_ = ncclSuccess;
};

}  // namespace tutti::nccl
