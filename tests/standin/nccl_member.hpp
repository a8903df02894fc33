#pragma once
// One rank of a communicator of the stand-in for NCCL.

#include "standin/control.hpp"
#include "standin/nccl_exchange.hpp"
#include "standin/runtime.hpp"

#include <nccl.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace tutti::standin {

// What ncclGetLastError returns.
inline std::string last_failure;

inline ncclResult_t refuse(ncclResult_t result, const std::string& why) {
  last_failure = why;
  return result;
}

// The content of a unique id.
struct Origin {
  int root = 0;  // in MPI_COMM_WORLD
  int number = 0;
};

struct Fault {
  std::string kind;
  int rank = -1;
  std::int64_t operation = 0;

  bool concerns(int which) const { return !kind.empty() && (rank == which || rank == -1); }

  static Fault from_environment() {
    Fault fault;
    const char* const text = std::getenv("TUTTI_NCCL_FAULT");
    if (text != nullptr) std::istringstream(text) >> fault.kind >> fault.rank >> fault.operation;
    return fault;
  }
};

// One rank of a communicator. Operations that are still on a stream own it after the communicator was destroyed.
class Member {
 public:
  Member(int rank, int ranks, const Origin& origin, bool is_child)
      : rank_(rank),
        ranks_(ranks),
        origin_(origin),
        channel_{.first_tag = ((origin.root * 64 + origin.number % 64) * 2 + (is_child ? 1 : 0)) * Channel::kTags},
        introduction_(card_of(rank), ranks, origin.root, channel_) {}

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const Origin& origin() const { return origin_; }

  // In progress until the ranks are connected.
  ncclResult_t state() {
    if (state_ != ncclSuccess && state_ != ncclInProgress) return state_;
    if (!introduced_) {
      if (!introduction_.done() || (fault_.concerns(rank_) && fault_.operation == 0)) return ncclInProgress;
      introduced_ = true;
      state_ = connect_ranks();
    }
    if (state_ == ncclSuccess && has_remote_failure()) state_ = refuse(ncclRemoteError, "another rank failed");
    return state_;
  }

  // Enqueues the calls of one group.
  ncclResult_t launch(cudaStream_t stream, const std::vector<Call>& calls, Lock& lock) {
    const std::int64_t number = ++operations_begun_;
    while (fault_.kind == "block" && fault_.concerns(rank_) && fault_.operation == number) lock.pause();
    auto exchanges = std::make_shared<Exchanges>();
    for (const Call& call : calls) {
      const int tag = call.is_collective() ? channel_.collective(++collectives_begun_) : channel_.from_rank_to_rank();
      exchanges->push_back(std::make_shared<Exchange>(call, rank_, tag));
    }
    const ncclResult_t result = enqueue(stream, exchanges, number);
    return result == ncclSuccess ? state() : result;
  }

  // Begins to meet the other ranks, as NCCL does to register memory. Null if this rank refuses.
  std::shared_ptr<Exchange> meet() {
    const int tag = channel_.collective(++collectives_begun_);
    if (fault_.kind == "windowless" && fault_.concerns(rank_)) return nullptr;
    const std::int64_t mine = 1;
    auto meeting = std::make_shared<Exchange>(Call{Call::Kind::all_gather, &mine, nullptr, 1, ncclInt64}, rank_, tag);
    meeting->start(introduction_.ranks());
    return meeting;
  }

  bool is_busy() const {
    return std::ranges::any_of(begun_, [](const auto& begun) { return !begun.expired(); });
  }

  void abort() {
    aborted_ = true;
    if (!introduced_) introduction_.give_up(self_.lock());
    for (const auto& begun : begun_) {
      if (const auto exchange = begun.lock()) Exchange::give_up(exchange);
    }
  }

  // Operations on the stream own this.
  void hold(const std::shared_ptr<Member>& self) { self_ = self; }

 private:
  using Exchanges = std::vector<std::shared_ptr<Exchange>>;

  // As in NCCL, two ranks of one host on one GPU, of which they may have different MIG instances, are a usage error.
  ncclResult_t connect_ranks() const {
    const auto& all = introduction_.ranks();
    for (const RankCard& one : all) {
      for (const RankCard& other : all) {
        if (one.rank < other.rank && one.bus_id == other.bus_id && one.host == other.host) {
          return refuse(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(one.rank) + " and rank " +
                                              std::to_string(other.rank));
        }
      }
    }
    return ncclSuccess;
  }

  ncclResult_t enqueue(cudaStream_t stream, const std::shared_ptr<Exchanges>& exchanges, std::int64_t number) {
    begun_.insert(begun_.end(), exchanges->begin(), exchanges->end());
    const auto self = self_.lock();
    const auto finish = [self, exchanges] {
      if (self->aborted_) return;
      for (const auto& exchange : *exchanges) exchange->finish();
    };
    const cudaError_t status =
        standin::enqueue(stream, finish, [self, exchanges, number] { return self->can_finish(*exchanges, number); });
    return status == cudaSuccess ? ncclSuccess : refuse(ncclUnhandledCudaError, cudaGetErrorName(status));
  }

  bool can_finish(const Exchanges& exchanges, std::int64_t number) {
    if (aborted_) return true;
    if (!exchanges.front()->started()) {
      if (meets_fault(number)) return false;
      for (const auto& exchange : exchanges) exchange->start(introduction_.ranks());
    }
    return std::ranges::all_of(exchanges, [](const auto& exchange) { return exchange->arrived(); });
  }

  // True if this operation must not begin.
  bool meets_fault(std::int64_t number) {
    if (fault_.kind == "block" || !fault_.concerns(rank_) || fault_.operation != number) return false;
    if (fault_.kind == "die") static_cast<void>(::raise(SIGKILL));
    if (fault_.kind == "fail" && state_ == ncclSuccess) {
      state_ = refuse(ncclSystemError, "injected failure");
      for (const RankCard& other : introduction_.ranks()) {
        if (other.rank != rank_) failures_.send(nullptr, 0, other.world_rank, channel_.failure());
      }
    }
    return true;
  }

  bool has_remote_failure() const {
    if (ranks_ == 1) return false;
    int there = 0;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, channel_.failure(), MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE));
    return there != 0;
  }

  int rank_;
  int ranks_;
  Origin origin_;
  Channel channel_;
  Introduction introduction_;
  Fault fault_ = Fault::from_environment();
  bool introduced_ = false;
  bool aborted_ = false;
  ncclResult_t state_ = ncclInProgress;
  std::int64_t operations_begun_ = 0;
  std::int64_t collectives_begun_ = 0;
  std::vector<std::weak_ptr<Exchange>> begun_;
  Messages failures_;
  std::weak_ptr<Member> self_;
};

}  // namespace tutti::standin
