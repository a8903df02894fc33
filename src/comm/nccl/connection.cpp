#include "connection.hpp"

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/base/timing.hpp"

#include "../backoff.hpp"
#include "transport.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
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

// In kernels of older versions, ranks that wait for each other at a window do not see that they are aborted, and
// ncclCommAbort() waits for them. See nccl_device/impl/lsa_barrier__funcs.h.
constexpr int kFirstWithAbortOfWindows = NCCL_VERSION(2, 29, 7);

struct Setting {
  const char* name;
  const char* value;
};

// Loopback sockets and host memory only; few thread blocks, since the ranks share the device in time slices; and the
// ring with a protocol that does not require two ranks' kernels to run at the same time.
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

// NCCL refuses two ranks of one host on one GPU. With different host IDs it treats them as ranks of different hosts,
// which communicate over loopback: slow, but enough for tests. This sets NCCL's environment variables unless the user
// has set them. Call it before the first NCCL call of the process, since NCCL reads them once. Throws a usage error if
// the environment would cause a deadlock.
void prepare_shared_device(const World& world) {
  const char* const blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  if (blocking != nullptr && std::string_view(blocking) == "1") {
    throw Error(ErrorSource::usage, "with CUDA_LAUNCH_BLOCKING=1, ranks that share a device would deadlock: unset it");
  }
  // The process ID is included, since a rank has another number in a sub-world.
  set("NCCL_HOSTID", fmt::format("{}-{}-{}", world.host(), ::getpid(), world.rank()), true);
  for (const Setting& setting : kSettings) set(setting.name, setting.value, false);
}

// Makes NCCL log its choices to memory, unless NCCL_DEBUG is set. Call it before the first NCCL call, too.
void begin_log() {
  const std::string path = log_path();
  if (std::getenv("NCCL_DEBUG") != nullptr || path.empty()) return;
  set("NCCL_DEBUG", "INFO", true);
  set("NCCL_DEBUG_SUBSYS", "INIT,GRAPH", true);
  set("NCCL_DEBUG_FILE", path, true);
}

}  // namespace

void check(ncclResult_t result, std::source_location where) {
  if (result != ncclSuccess) throw Error(ErrorSource::nccl, text_of(result), where);
}

int version_number() {
  int number = 0;
  check(ncclGetVersion(&number));
  return number;
}

std::string text_of_version(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

std::string text_of(ncclResult_t result) {
  const char* const last = ncclGetLastError(nullptr);
  const std::string_view detail = last == nullptr ? "" : last;
  return fmt::format("{}{}{}; NCCL_DEBUG=WARN prints more", ncclGetErrorString(result), detail.empty() ? "" : ": ",
                     detail);
}

Connection::Connection(World& world, const NcclOptions& options)
    : rank_(world.rank()),
      size_(world.size()),
      who_(fmt::format("rank {} on {}", world.rank(), world.host())),
      deadline_seconds_(options.deadline_seconds) {
  ncclUniqueId id{};
  run_or_throw_on_all(world, [&] {
    use_cuda_device(options.device);
    if (options.share_device) prepare_shared_device(world);
    begin_log();
    if (world.rank() == 0) check(ncclGetUniqueId(&id));
  });
  world.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  Handle parent_of_all;
  run_or_throw_on_all(world, [&] {
    const std::string where = fmt::format("connecting {} ranks by NCCL", world.size());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t parent = nullptr;
    ncclComm_t child = nullptr;  // outlives `connecting`: NCCL's thread writes to it
    world.collectives().by_nccl = true;
    const CollectiveScope counted(world.collectives());
    const ncclResult_t connected = ncclCommInitRankConfig(&parent, world.size(), id, world.rank(), &config);
    // On failure this aborts the communicator before the ranks agree, so that the others are notified at once.
    Handle connecting(parent);
    wait_until_done(parent, connected, where);
    config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    wait_until_done(parent, ncclCommSplit(parent, 0, world.rank(), &child, &config), where);
    parent_of_all = std::move(connecting);
    communicator_ = Handle(child);
  });
  if (!options.share_device) registers_memory_ = try_to_register(world, std::move(parent_of_all), options.warn);
}

bool Connection::try_to_register(World& world, Handle communicator,
                                 const std::function<void(const std::string&)>& warn) const {
  const std::string where = "registering memory";
  void* memory = nullptr;
  ncclWindow_t window = nullptr;  // outlives `trial`: NCCL's thread writes to it
  Handle trial = std::move(communicator);
  const int version = version_number();
  const bool too_old = version < kFirstWithAbortOfWindows;
  ncclResult_t result = too_old ? ncclInvalidUsage : ncclMemAlloc(&memory, 1);
  if (result == ncclSuccess) {
    result = ncclCommWindowRegister(trial.get(), memory, 1, &window, NCCL_WIN_COLL_SYMMETRIC);
  }
  const Stopwatch watch;
  double slowest = 1;  // 0: all ranks have registered; 1: some still wait for others; 2: a rank cannot
  for (Backoff backoff(kMaxTransferSleep); slowest == 1; backoff.wait()) {
    if (result == ncclSuccess || result == ncclInProgress) result = state_of(trial.get());
    if (result == ncclInProgress && watch.seconds() > deadline_seconds_) throw timeout_error(where);
    slowest = max_over_ranks(world, {result == ncclSuccess ? 0.0 : result == ncclInProgress ? 1.0 : 2.0}).front();
  }
  const bool refused = result != ncclSuccess && result != ncclInProgress;
  const std::string refusal = too_old
                                  ? fmt::format("NCCL {} cannot abort collectives on registered memory, NCCL {} can",
                                                text_of_version(version), text_of_version(kFirstWithAbortOfWindows))
                              : refused ? failed(where, result).what()
                                        : "";
  const auto refusals = all_gather_text(world, refusal);
  trial.reset();
  static_cast<void>(ncclMemFree(memory));
  const auto first = std::ranges::find_if(refusals, [](const std::string& text) { return !text.empty(); });
  if (first == refusals.end()) return true;
  if (rank_ == 0 && warn) warn("NCCL does not register memory, so collectives copy it: " + *first);
  return false;
}

void Connection::wait_until_done(ncclComm_t communicator, ncclResult_t result, const std::string& where) const {
  // A call may return success before its end, as ncclCommSplit does: only the state says that it has ended.
  if (result == ncclSuccess) result = ncclInProgress;
  const Stopwatch watch;
  for (Backoff backoff(kMaxTransferSleep); result == ncclInProgress; backoff.wait()) {
    if (watch.seconds() > deadline_seconds_) throw timeout_error(where);
    result = state_of(communicator);
  }
  require_success(result, where);
}

void Connection::require_success(ncclResult_t result, const std::string& where) const {
  if (result != ncclSuccess) throw failed(where, result);
}

void Connection::check_async_error(const std::string& where) const { require_success(state_of(native()), where); }

Error Connection::failed(const std::string& where, ncclResult_t result) const {
  std::string remedy;
  if (result == ncclRemoteError) remedy = "; look at the last lines of the other ranks";
  if (result == ncclRemoteError || result == ncclSystemError) remedy += fmt::format("; {}", kNcclNetworkRemedy);
  return Error(ErrorSource::nccl, fmt::format("{} failed in {}: {}{}", who_, where, text_of(result), remedy));
}

Error Connection::timeout_error(const std::string& where) const {
  return Error(
      ErrorSource::hang,
      fmt::format("{} gave up after {:g} s in {}: not all ranks reached it. Look for a rank that is late or "
                  "dead: the rank whose last log line is oldest, an idle GPU (nvidia-smi), a node that is down; {}; "
                  "--stall-timeout allows more time",
                  who_, deadline_seconds_, where, kNcclNetworkRemedy));
}

Group::Group() { check(ncclGroupStart()); }

Group::~Group() {
  // An open group would defer all later NCCL calls of this thread, including the abort.
  if (open_) static_cast<void>(ncclGroupEnd());
}

void Group::add(ncclResult_t result) {
  if (result_ == ncclSuccess) result_ = result;
}

ncclResult_t Group::end() {
  open_ = false;
  const ncclResult_t result = ncclGroupEnd();
  return result_ == ncclSuccess ? result : result_;
}

}  // namespace tutti::nccl
