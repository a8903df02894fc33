// NCCL's calls that we use, over MPI, on streams of the stand-in for CUDA. A communicator that does not block answers
// late on purpose: what it was asked for is under way until it has been asked for its state a few times, and only then
// is a sum on its stream.
//
// Environment: TUTTI_NCCL_FAULT="stall 1 3" lets rank 1 never come to its 3rd sum; "fail" lets it fail there, which the
// others hear of; "die" ends its process there.

#include "standin/control.hpp"
#include "standin/nccl_exchange.hpp"
#include "standin/runtime.hpp"

#include <nccl.h>
#include <unistd.h>

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

// What an id holds.
struct Origin {
  int root = 0;  // in MPI_COMM_WORLD
  int number = 0;
};

int world_rank() {
  int initialised = 0;
  int rank = 0;
  check_mpi(MPI_Initialized(&initialised));
  if (initialised != 0) check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  return rank;
}

struct Fault {
  std::string kind;
  int rank = -1;
  std::int64_t sum = 0;

  static Fault from_environment() {
    Fault fault;
    const char* const text = std::getenv("TUTTI_NCCL_FAULT");
    if (text != nullptr) std::istringstream(text) >> fault.kind >> fault.rank >> fault.sum;
    return fault;
  }
};

RankCard card_of(int rank) {
  RankCard card{.rank = rank, .world_rank = world_rank()};
  const char* const given = std::getenv("NCCL_HOSTID");
  if (given != nullptr) {
    std::strncpy(card.host.data(), given, card.host.size() - 1);
  } else if (::gethostname(card.host.data(), card.host.size() - 1) != 0) {
    throw std::runtime_error("gethostname");
  }
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, current_device()) != cudaSuccess) throw std::runtime_error("no device");
  std::memcpy(card.uuid.data(), properties.uuid.bytes, card.uuid.size());
  return card;
}

// One rank of a communicator. Sums that are still on a stream keep it when the communicator is gone.
class Member {
 public:
  Member(int rank, int ranks, const Origin& origin)
      : rank_(rank),
        ranks_(ranks),
        channel_{.first_tag = (origin.root * 64 + origin.number % 64) * Channel::kTags},
        introduction_(card_of(rank), ranks, origin.root, channel_) {}

  bool aborted() const { return aborted_; }
  int ranks() const { return ranks_; }

  // Of what was asked for last, which goes on a little.
  ncclResult_t poll() {
    if (state_ != ncclSuccess && state_ != ncclInProgress) return state_;
    if (!introduced_) {
      if (!introduction_.done()) return ncclInProgress;
      introduced_ = true;
      state_ = meeting();
    }
    if (pending_ && --answers_left_ <= 0) {
      state_ = enqueue(pending_->stream, pending_->exchange);
      pending_.reset();
    }
    if (state_ == ncclSuccess && hears_of_failure()) state_ = refuse(ncclRemoteError, "another rank failed");
    return pending_ ? ncclInProgress : state_;
  }

  bool is_busy() const { return !introduced_ || pending_; }

  void begin(cudaStream_t stream, const Exchange::Values& values) {
    pending_ = Pending{stream, std::make_shared<Exchange>(values)};
    answers_left_ = kLateAnswers;
  }

  void abort() {
    aborted_ = true;
    pending_.reset();
    if (!introduced_) introduction_.give_up(self_.lock());
    for (const auto& sum : sums_) {
      if (const auto exchange = sum.lock()) Exchange::give_up(exchange);
    }
  }

  // The sums' steps on the stream hold this.
  void hold(const std::shared_ptr<Member>& self) { self_ = self; }

 private:
  struct Pending {
    cudaStream_t stream;
    std::shared_ptr<Exchange> exchange;
  };

  // As NCCL: two ranks of one host on one device are an error of the user's.
  ncclResult_t meeting() const {
    const auto& all = introduction_.ranks();
    for (const RankCard& one : all) {
      for (const RankCard& other : all) {
        if (one.rank < other.rank && one.uuid == other.uuid && one.host == other.host) {
          return refuse(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(one.rank) + " and rank " +
                                              std::to_string(other.rank));
        }
      }
    }
    return ncclSuccess;
  }

  ncclResult_t enqueue(cudaStream_t stream, const std::shared_ptr<Exchange>& exchange) {
    const std::int64_t number = ++sums_begun_;
    sums_.push_back(exchange);
    const auto self = self_.lock();
    const cudaError_t status = standin::enqueue(
        stream, [self, exchange] { self->aborted_ ? void() : exchange->add(); },
        [self, exchange, number] { return self->can_add(*exchange, number); });
    return status == cudaSuccess ? ncclSuccess : refuse(ncclUnhandledCudaError, cudaGetErrorName(status));
  }

  bool can_add(Exchange& exchange, std::int64_t number) {
    if (aborted_) return true;
    if (!exchange.started()) {
      if (meets_fault(number)) return false;
      exchange.start(introduction_.ranks(), rank_, channel_.sum(number));
    }
    return exchange.arrived();
  }

  // True where this sum shall not begin.
  bool meets_fault(std::int64_t number) {
    if (fault_.rank != rank_ || fault_.sum != number) return false;
    if (fault_.kind == "die") static_cast<void>(::raise(SIGKILL));
    if (fault_.kind == "fail" && state_ == ncclSuccess) {
      state_ = refuse(ncclSystemError, "told to fail");
      for (const RankCard& other : introduction_.ranks()) {
        if (other.rank != rank_) failures_.send(nullptr, 0, other.world_rank, channel_.failure());
      }
    }
    return true;
  }

  bool hears_of_failure() const {
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
  std::int64_t sums_begun_ = 0;
  std::vector<std::weak_ptr<Exchange>> sums_;
  Messages failures_;
  std::weak_ptr<Member> self_;
};

}  // namespace
}  // namespace tutti::standin

using namespace tutti::standin;

struct ncclComm {
  std::shared_ptr<Member> member;
};

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

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t communicator, cudaStream_t stream) {
  if (communicator == nullptr) return refuse(ncclInvalidArgument, "no communicator");
  const Lock lock;
  Member& member = *communicator->member;
  if (member.is_busy()) return refuse(ncclInvalidArgument, "the communicator is still at what it was asked for before");
  if (from != to || operation != ncclSum || (type != ncclFloat32 && type != ncclInt64)) {
    return refuse(ncclInvalidArgument, "the stand-in adds f32 and i64 in place");
  }
  const Exchange::Values values{to, count, type == ncclFloat32 ? Exchange::Type::f32 : Exchange::Type::i64};
  const auto* const memory = find_allocation(to);
  if (memory == nullptr || !memory->second.on_device) return refuse(ncclInvalidArgument, "not memory of a device");
  member.begin(stream, values);
  return member.poll();
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  if (communicator == nullptr) return ncclSuccess;
  const Lock lock;
  communicator->member->abort();
  delete communicator;
  return ncclSuccess;
}

}  // extern "C"
