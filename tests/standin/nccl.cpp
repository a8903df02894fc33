// NCCL's calls that we use, over MPI, on streams of the stand-in for CUDA. A communicator that does not block answers
// late: a call stays in progress until its state was queried a few times, and only then is the operation enqueued on
// its stream. A group of calls is one operation.
//
// Environment: TUTTI_NCCL_FAULT="stall 1 3" blocks rank 1 before its 3rd operation, "fail" lets it fail there, which
// the others notice, and "die" ends its process there. Rank -1 is every rank, and operation 0 is the connecting.
// NCCL_ALGO=Ring or Tree is the order in which all-reduces add.

#include "standin/control.hpp"
#include "standin/nccl_exchange.hpp"
#include "standin/runtime.hpp"

#include <nccl.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>

namespace tutti::standin {
namespace {

constexpr int kLateAnswers = 3;

std::string last_failure;

ncclResult_t refuse(ncclResult_t result, const std::string& why) {
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
  Member(int rank, int ranks, const Origin& origin)
      : rank_(rank),
        ranks_(ranks),
        channel_{.first_tag = (origin.root * 64 + origin.number % 64) * Channel::kTags},
        introduction_(card_of(rank), ranks, origin.root, channel_) {}

  bool aborted() const { return aborted_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // The state of the last call, which stays in progress for a few queries.
  ncclResult_t poll() {
    if (state_ != ncclSuccess && state_ != ncclInProgress) return state_;
    if (!introduced_) {
      if (!introduction_.done() || (fault_.concerns(rank_) && fault_.operation == 0)) return ncclInProgress;
      introduced_ = true;
      state_ = connect_ranks();
    }
    if (pending_ && --answers_left_ <= 0) {
      state_ = enqueue(pending_->stream, pending_->exchanges);
      pending_.reset();
    }
    if (state_ == ncclSuccess && has_remote_failure()) state_ = refuse(ncclRemoteError, "another rank failed");
    return pending_ ? ncclInProgress : state_;
  }

  bool is_busy() const { return !introduced_ || pending_; }

  // Calls of one group.
  void begin(cudaStream_t stream, const std::vector<Call>& calls) {
    pending_ = Pending{stream, std::make_shared<Exchanges>()};
    for (const Call& call : calls) {
      const int tag = call.is_collective() ? channel_.collective(++collectives_begun_) : channel_.from_rank_to_rank();
      pending_->exchanges->push_back(std::make_shared<Exchange>(call, rank_, tag));
    }
    answers_left_ = kLateAnswers;
  }

  void abort() {
    aborted_ = true;
    pending_.reset();
    if (!introduced_) introduction_.give_up(self_.lock());
    for (const auto& begun : begun_) {
      if (const auto exchange = begun.lock()) Exchange::give_up(exchange);
    }
  }

  // Operations on the stream own this.
  void hold(const std::shared_ptr<Member>& self) { self_ = self; }

 private:
  using Exchanges = std::vector<std::shared_ptr<Exchange>>;
  struct Pending {
    cudaStream_t stream;
    std::shared_ptr<Exchanges> exchanges;
  };

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

  ncclResult_t enqueue(cudaStream_t stream, const std::shared_ptr<Exchanges>& exchanges) {
    const std::int64_t number = ++operations_begun_;
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
    if (!fault_.concerns(rank_) || fault_.operation != number) return false;
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
  Channel channel_;
  Introduction introduction_;
  Fault fault_ = Fault::from_environment();
  bool introduced_ = false;
  bool aborted_ = false;
  ncclResult_t state_ = ncclInProgress;
  int answers_left_ = 0;
  std::optional<Pending> pending_;
  std::int64_t operations_begun_ = 0;
  std::int64_t collectives_begun_ = 0;
  std::vector<std::weak_ptr<Exchange>> begun_;
  Messages failures_;
  std::weak_ptr<Member> self_;
};

}  // namespace
}  // namespace tutti::standin

using namespace tutti::standin;

struct ncclComm {
  std::shared_ptr<Member> member;
};

namespace {

// The calls of a thread since ncclGroupStart().
struct OpenGroup {
  int depth = 0;
  ncclResult_t result = ncclSuccess;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Call> calls;
};
thread_local OpenGroup group;

bool is_device_memory(const void* values, std::size_t bytes) {
  const auto* const memory = find_allocation(values);
  return memory != nullptr && memory->second.on_device &&
         reinterpret_cast<std::uintptr_t>(values) + bytes <= memory->first + memory->second.bytes;
}

// Null if the call is valid. We only use values in place.
const char* mistake_in(const Call& call, const Member& member) {
  const auto rank = static_cast<std::size_t>(member.rank());
  const auto* const from = static_cast<const std::byte*>(call.from);
  const auto* const to = static_cast<const std::byte*>(call.to);
  if (call.other < 0 || call.other >= member.ranks()) return "a rank that is not there";
  if (!call.is_collective() && call.other == member.rank()) return "the stand-in sends to other ranks only";
  if (call.adds() && call.type != ncclFloat32 && call.type != ncclInt64) return "the stand-in adds f32 and i64";
  if (call.kind == Call::Kind::reduce_scatter ? to != from + rank * call.bytes()
      : call.kind == Call::Kind::all_gather   ? from != to + rank * call.bytes()
                                              : call.is_collective() && from != to) {
    return "the stand-in works in place";
  }
  if (call.kind != Call::Kind::receive && !is_device_memory(from, call.bytes_from(member.ranks()))) {
    return "not memory of a device";
  }
  if (call.kind != Call::Kind::send && !is_device_memory(to, call.bytes_to(member.ranks()))) {
    return "not memory of a device";
  }
  return nullptr;
}

ncclResult_t ask(const Call& call, ncclComm_t communicator, cudaStream_t stream) {
  if (communicator == nullptr) return refuse(ncclInvalidArgument, "no communicator");
  const Lock lock;
  Member& member = *communicator->member;
  if (member.is_busy()) return refuse(ncclInvalidArgument, "the communicator is still busy with an earlier call");
  if (const char* const mistake = mistake_in(call, member); mistake != nullptr) {
    group.result = refuse(ncclInvalidArgument, mistake);
    return group.result;
  }
  if (group.depth == 0) {
    member.begin(stream, {call});
    return member.poll();
  }
  if (!group.calls.empty() && (group.communicator != communicator || group.stream != stream)) {
    group.result = refuse(ncclInvalidUsage, "the stand-in's groups are of one communicator and stream");
    return group.result;
  }
  group.communicator = communicator;
  group.stream = stream;
  group.calls.push_back(call);
  return ncclSuccess;
}

ncclResult_t ask_to_add(const Call& call, ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  if (operation != ncclSum) return refuse(ncclInvalidArgument, "the stand-in adds");
  return ask(call, communicator, stream);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}
const char* ncclGetLastError(ncclComm_t) { return last_failure.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int ids = 0;
  const Origin origin{.root = world_rank(), .number = ids++};
  *id = {};
  std::memcpy(id->internal, &origin, sizeof origin);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const Lock lock;
  *communicator = nullptr;
  if (rank < 0 || rank >= ranks) return refuse(ncclInvalidArgument, "a rank that is not there");
  if (config == nullptr || config->blocking != 0) return refuse(ncclInvalidUsage, "the stand-in never blocks");
  if (ranks > 1 && std::getenv("TUTTI_STANDIN_EAGER") != nullptr && !loads_eagerly()) {
    return refuse(ncclInvalidUsage, "a kernel that loads at its first launch may wait for other ranks");
  }
  Origin origin;
  std::memcpy(&origin, id.internal, sizeof origin);
  auto member = std::make_shared<Member>(rank, ranks, origin);
  member->hold(member);
  *communicator = new ncclComm{std::move(member)};
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  if (communicator == nullptr) return refuse(ncclInvalidArgument, "no communicator");
  const Lock lock;
  *state = communicator->member->poll();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  if (group.depth == 0) group = {};
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return refuse(ncclInvalidUsage, "no group is open");
  if (--group.depth > 0 || group.result != ncclSuccess || group.calls.empty()) return group.result;
  const Lock lock;
  Member& member = *group.communicator->member;
  member.begin(group.stream, group.calls);
  return member.poll();
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t communicator, cudaStream_t stream) {
  return ask_to_add({Call::Kind::all_reduce, from, to, count, type}, operation, communicator, stream);
}

ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t communicator, cudaStream_t stream) {
  return ask_to_add({Call::Kind::reduce, from, to, count, type, root}, operation, communicator, stream);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  return ask_to_add({Call::Kind::reduce_scatter, from, to, count, type}, operation, communicator, stream);
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return ask({Call::Kind::broadcast, from, to, count, type, root}, communicator, stream);
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
  return ask({Call::Kind::all_gather, from, to, count, type}, communicator, stream);
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return ask({Call::Kind::send, from, nullptr, count, type, peer}, communicator, stream);
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return ask({Call::Kind::receive, nullptr, to, count, type, peer}, communicator, stream);
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  if (communicator == nullptr) return ncclSuccess;
  if (group.depth > 0) return refuse(ncclInvalidUsage, "a group is open");
  const Lock lock;
  communicator->member->abort();
  delete communicator;
  return ncclSuccess;
}

}  // extern "C"
