#pragma once
// A communicator of NCCL's that does not block: made, waited for with a deadline, and given up.

#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"
#include "tutti/comm/nccl_library.hpp"

#include <nccl.h>

#include <source_location>
#include <string>

namespace tutti::nccl {

void check(ncclResult_t result, std::source_location where = std::source_location::current());

// What a failure means, in NCCL's words, and how to learn more.
std::string text_of(ncclResult_t result);

// Unlike destroying, aborting does not wait for other ranks, so it may be done in a destructor.
struct AbortCommunicator {
  void operator()(ncclComm_t communicator) const noexcept { static_cast<void>(ncclCommAbort(communicator)); }
};

class Connection {
 public:
  // Each step is voted on, so that a rank that fails alone does not leave the others waiting in the next. Collective.
  Connection(World& world, const NcclOptions& options);

  int rank() const { return rank_; }
  int size() const { return size_; }
  double deadline_seconds() const { return deadline_seconds_; }
  // Gone after abort().
  ncclComm_t native() const { return communicator_.get(); }

  // What a call of a communicator that does not block has begun goes on in a thread of NCCL's, also the enqueueing of a
  // sum on a stream. Until it is through, nothing else may be asked of the communicator or put on the stream.
  void settle(ncclResult_t result, const std::string& where) const { settle(native(), result, where); }
  // Failures of other ranks and of the network arrive while work is under way, and only here.
  void check_state(const std::string& where) const;
  Error give_up(const std::string& where) const;
  void abort() noexcept { communicator_.reset(); }

 private:
  using Handle = UniqueHandle<ncclComm_t, AbortCommunicator>;

  void settle(ncclComm_t communicator, ncclResult_t result, const std::string& where) const;
  Error failed(const std::string& where, ncclResult_t result) const;

  int rank_;
  int size_;
  std::string who_;  // "rank 1 on node3"
  double deadline_seconds_;
  Handle communicator_;
};

// Calls that are begun as one. NCCL keeps what a call within returns, and may say of the end that it is in progress.
class Group {
 public:
  Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group();

  void add(ncclResult_t result);
  // What is to be settled.
  ncclResult_t end();

 private:
  bool open_ = true;
  ncclResult_t result_ = ncclSuccess;
};

}  // namespace tutti::nccl
