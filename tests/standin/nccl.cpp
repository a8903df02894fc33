// NCCL's calls that we use, over MPI, on streams of the stand-in for CUDA. A group of calls is one operation. The calls
// of a communicator that does not block stay in progress until all ranks have made them; it has no collectives. As in
// NCCL 2.27 to 2.30, its calls may return success before their end (ncclCommSplit always does), what they return by
// pointer is null until the communicator's state is success, and a call before that is refused.
//
// Environment: TUTTI_NCCL_FAULT="stall 1 3" blocks rank 1 before its 3rd operation, "fail" lets it fail there, which
// the others notice, and "die" ends its process there; with "block", the call of the host does not return. Rank -1 is
// every rank, and operation 0 is the connecting. With "windowless 1 -1", rank 1 cannot register memory.
// TUTTI_STANDIN_NCCL=22809 is NCCL 2.28.9, whose aborts wait for kernels that use registered memory.
// NCCL_ALGO=Ring or Tree is the order in which all-reduces add.

#include "standin/control.hpp"
#include "standin/finding.hpp"
#include "standin/nccl_log.hpp"
#include "standin/nccl_member.hpp"
#include "standin/random_source.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

namespace tutti::standin {
namespace {

std::int64_t launches = 0;
std::map<void*, ncclComm_t> windows;  // by the memory that is registered

}  // namespace

std::int64_t nccl_launches() {
  const Lock lock;
  return launches;
}
std::size_t nccl_windows() {
  const Lock lock;
  return windows.size();
}

}  // namespace tutti::standin

using namespace tutti::standin;

struct ncclComm {
  std::shared_ptr<Member> member;
  bool blocks = false;
  // In progress, on a communicator that does not block:
  std::shared_ptr<Member> splitting{};
  ncclComm** child = nullptr;
  std::shared_ptr<Exchange> registering{};
  void* registered = nullptr;
  ncclWindow_t* window = nullptr;
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

std::shared_ptr<Member> make_member(int rank, int ranks, const Origin& origin, bool is_child) {
  auto member = std::make_shared<Member>(rank, ranks, origin, is_child);
  member->hold(member);
  return member;
}

// Of a communicator, with what is in progress on it. Writes the results of calls that have ended.
ncclResult_t state_of(ncclComm& communicator) {
  ncclResult_t state = communicator.member->state();
  if (state == ncclSuccess && communicator.splitting != nullptr) {
    state = communicator.splitting->state();
    if (state == ncclSuccess) {
      *communicator.child = new ncclComm{.member = std::move(communicator.splitting), .blocks = true};
    }
  }
  if (state == ncclSuccess && communicator.registering != nullptr) {
    if (!communicator.registering->arrived()) return ncclInProgress;
    communicator.registering.reset();
    *communicator.window = static_cast<ncclWindow_t>(communicator.registered);
  }
  return state;
}

bool is_ready(ncclComm& communicator) {
  if (state_of(communicator) == ncclSuccess) return true;
  last_failure = "the communicator is used before the previous call has ended";
  return false;
}

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
  if (call.adds() && call.type != ncclFloat32 && call.type != ncclBfloat16 && call.type != ncclInt32 &&
      call.type != ncclInt64) {
    return "the stand-in adds f32, bf16, i32 and i64";
  }
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
  if (communicator == nullptr) return refuse(ncclInvalidArgument, "comm argument is NULL");
  if (!communicator->blocks) return refuse(ncclInvalidUsage, "a thread would be created for each collective");
  Lock lock;
  Member& member = *communicator->member;
  if (const char* const mistake = mistake_in(call, member); mistake != nullptr) {
    group.result = refuse(ncclInvalidArgument, mistake);
    return group.result;
  }
  if (group.depth == 0) {
    ++launches;
    return member.launch(stream, {call}, lock);
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
  const char* const given = std::getenv("TUTTI_STANDIN_NCCL");
  *version = given == nullptr ? NCCL_VERSION(2, 30, 7) : std::stoi(given);
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
  if (config == nullptr || config->blocking != 0) return refuse(ncclInvalidUsage, "connecting without a timeout");
  if (ranks > 1 && std::getenv("TUTTI_STANDIN_EAGER") != nullptr && !loads_eagerly()) {
    return refuse(ncclInvalidUsage, "a kernel that loads at its first launch may wait for other ranks");
  }
  log_transport();
  Origin origin;
  std::memcpy(&origin, id.internal, sizeof origin);
  *communicator = new ncclComm{make_member(rank, ranks, origin, false)};
  return state_of(**communicator);
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* child, ncclConfig_t* config) {
  if (parent == nullptr) return refuse(ncclInvalidArgument, "comm argument is NULL");
  const Lock lock;
  if (!is_ready(*parent)) return ncclInvalidArgument;
  *child = nullptr;
  if (color != 0 || key != parent->member->rank() || config == nullptr || config->blocking == 0) {
    return refuse(ncclInvalidUsage, "the stand-in splits off a communicator of all ranks that blocks");
  }
  const Member& member = *parent->member;
  parent->splitting = make_member(member.rank(), member.ranks(), member.origin(), true);
  parent->child = child;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  if (communicator == nullptr) return refuse(ncclInvalidArgument, "comm argument is NULL");
  const Lock lock;
  *state = state_of(*communicator);
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
  Lock lock;
  ++launches;
  return group.communicator->member->launch(group.stream, group.calls, lock);
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

ncclResult_t ncclMemAlloc(void** data, std::size_t bytes) {
  return cudaMalloc(data, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclMemFree(void* data) {
  const Lock lock;
  if (windows.contains(data)) throw Finding("memory is freed while it is registered");
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t communicator, void* data, std::size_t bytes, ncclWindow_t* window,
                                    int flags) {
  Lock lock;
  if (communicator == nullptr) return refuse(ncclInvalidArgument, "comm argument is NULL");
  if (!is_ready(*communicator)) return ncclInvalidArgument;
  if (flags != NCCL_WIN_COLL_SYMMETRIC || !is_device_memory(data, bytes) || windows.contains(data)) {
    return refuse(ncclInvalidArgument, "the stand-in registers device memory once");
  }
  const auto meeting = communicator->member->meet();
  if (meeting == nullptr) return refuse(ncclInvalidUsage, "no windows");
  windows[data] = communicator;
  *window = nullptr;
  communicator->registering = meeting;
  communicator->registered = data;
  communicator->window = window;
  // As in NCCL, the host waits for the other ranks, and the device goes on.
  while (communicator->blocks && state_of(*communicator) == ncclInProgress) {
    if (!runtime().schedule.step()) lock.pause();
  }
  if (communicator->blocks) return state_of(*communicator);
  static RandomSource random(static_cast<std::uint64_t>(communicator->member->rank()));
  return random.below(2) == 0 ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t communicator, ncclWindow_t window) {
  const Lock lock;
  const auto found = windows.find(window);
  if (found == windows.end() || found->second != communicator) return refuse(ncclInvalidArgument, "no such window");
  windows.erase(found);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  if (communicator == nullptr) return ncclSuccess;
  if (group.depth > 0) return refuse(ncclInvalidUsage, "a group is open");
  const Lock lock;
  int version = 0;
  static_cast<void>(ncclGetVersion(&version));
  if (version < NCCL_VERSION(2, 29, 7) && communicator->member->is_busy() &&
      std::ranges::any_of(windows, [=](const auto& window) { return window.second == communicator; })) {
    throw Finding("an abort waits for a kernel that waits at a window");
  }
  communicator->member->abort();
  if (communicator->splitting != nullptr) communicator->splitting->abort();
  if (communicator->registering != nullptr) Exchange::give_up(communicator->registering);
  std::erase_if(windows, [=](const auto& window) { return window.second == communicator; });
  delete communicator;
  return ncclSuccess;
}

}  // extern "C"
