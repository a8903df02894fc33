#include "connection.hpp"

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/base/timing.hpp"

#include "../backoff.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>

namespace tutti::nccl {
namespace {

ncclResult_t state_of(ncclComm_t communicator) {
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(communicator, &state));
  return state;
}

struct Setting {
  const char* name;
  const char* value;
};

// Sockets on loopback with host memory alone; few blocks, since the ranks take turns on the device; the ring with the
// protocol that needs no rank to run while another polls.
constexpr std::array kSettings{
    Setting{"NCCL_NET", "Socket"},
    Setting{"NCCL_NET_PLUGIN", "none"},
    Setting{"NCCL_IB_DISABLE", "1"},
    Setting{"NCCL_SOCKET_IFNAME", "lo"},
    Setting{"NCCL_SOCKET_FAMILY", "AF_INET"},
    Setting{"NCCL_ALGO", "Ring"},
    Setting{"NCCL_PROTO", "Simple"},
    Setting{"NCCL_MAX_CTAS", "2"},
    Setting{"NCCL_MNNVL_ENABLE", "0"},
    Setting{"NCCL_NVLS_ENABLE", "0"},
    Setting{"NCCL_CUMEM_HOST_ENABLE", "0"},
    Setting{"NCCL_RAS_ENABLE", "0"},
    Setting{"NCCL_P2P_DISABLE", "1"},
    Setting{"NCCL_SHM_DISABLE", "1"},
};

void set(const char* name, const std::string& value, bool replace) {
  if (::setenv(name, value.c_str(), replace ? 1 : 0) != 0) {
    throw Error(ErrorSource::internal, fmt::format("cannot set {} in the environment", name));
  }
}

// NCCL refuses two ranks of one host on one GPU. With host names of their own it takes them for ranks of different
// hosts, which talk over loopback: slow, and enough for tests. This sets the environment for that, except what the user
// has set. Call it before the process's first call of NCCL, which reads the environment once. Throws a usage error
// where sums would never end.
void prepare_shared_device(const World& world) {
  const char* const blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (blocking != nullptr && std::string_view(blocking) == "1") {
    throw Error(ErrorSource::usage,
                "with CUDA_LAUNCH_BLOCKING=1 ranks that share a device would wait for each other for ever: unset it");
  }
  // The process too, since a rank of a sub-world has another number there.
  set("NCCL_HOSTID", fmt::format("{}-{}-{}", world.host(), ::getpid(), world.rank()), true);
  for (const Setting& setting : kSettings) set(setting.name, setting.value, false);
}

}  // namespace

void check(ncclResult_t result, std::source_location where) {
  if (result != ncclSuccess) throw Error(ErrorSource::nccl, text_of(result), where);
}

std::string text_of(ncclResult_t result) {
  const char* const last = ncclGetLastError(nullptr);
  const std::string_view detail = last == nullptr ? "" : last;
  return fmt::format("{}{}{}; NCCL_DEBUG=WARN tells more", ncclGetErrorString(result), detail.empty() ? "" : ": ",
                     detail);
}

Connection::Connection(World& world, const NcclOptions& options)
    : rank_(world.rank()),
      size_(world.size()),
      who_(fmt::format("rank {} on {}", world.rank(), world.host())),
      deadline_seconds_(options.deadline_seconds) {
  ncclUniqueId id{};
  run_agreed(world, [&] {
    use_cuda_device(options.device);
    if (options.share_device) prepare_shared_device(world);
    if (world.rank() == 0) check(ncclGetUniqueId(&id));
  });
  world.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  run_agreed(world, [&] {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t communicator = nullptr;
    const ncclResult_t result = ncclCommInitRankConfig(&communicator, world.size(), id, world.rank(), &config);
    // Given up before the vote when it fails, so that the others hear of it at once.
    Handle connecting(communicator);
    settle(communicator, result, fmt::format("NCCL's connecting of {} ranks", world.size()));
    communicator_ = std::move(connecting);
  });
}

void Connection::settle(ncclComm_t communicator, ncclResult_t result, const std::string& where) const {
  const Stopwatch watch;
  for (Backoff backoff(kUntilMoved); result == ncclInProgress; backoff.wait()) {
    if (watch.seconds() > deadline_seconds_) throw give_up(where);
    result = state_of(communicator);
  }
  if (result != ncclSuccess) throw failed(where, result);
}

void Connection::check_state(const std::string& where) const {
  const ncclResult_t state = state_of(native());
  if (state != ncclSuccess && state != ncclInProgress) throw failed(where, state);
}

Error Connection::failed(const std::string& where, ncclResult_t result) const {
  const char* const others = result == ncclRemoteError ? "; look at the last lines of the other ranks" : "";
  return Error(ErrorSource::nccl, fmt::format("{} stopped in {}: {}{}", who_, where, text_of(result), others));
}

Error Connection::give_up(const std::string& where) const {
  return Error(ErrorSource::hang,
               fmt::format("{} gave up after {:g} s in {}: not all ranks came to it. Look for the one that is late or "
                           "gone: the oldest last line, a GPU that stands still (nvidia-smi), a node that is down; "
                           "--stall-timeout allows more time",
                           who_, deadline_seconds_, where));
}

Group::Group() { check(ncclGroupStart()); }

Group::~Group() {
  // Left open, it would hold all that this thread asks of NCCL later, the giving up too.
  if (open_) static_cast<void>(ncclGroupEnd());
}

void Group::add(ncclResult_t result) {
  if (result_ == ncclSuccess && result != ncclInProgress) result_ = result;
}

ncclResult_t Group::end() {
  open_ = false;
  const ncclResult_t result = ncclGroupEnd();
  return result_ == ncclSuccess ? result : result_;
}

}  // namespace tutti::nccl
