#include "connection.hpp"

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/base/stopwatch.hpp"

#include "../backoff.hpp"
#include "check.hpp"
#include "shared_device.hpp"

#include <fmt/format.h>

#include <span>
#include <utility>

namespace tutti::nccl {
namespace {

ncclResult_t state_of(ncclComm_t communicator) {
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(communicator, &state));
  return state;
}

}  // namespace

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
