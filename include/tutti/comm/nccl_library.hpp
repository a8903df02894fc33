#pragma once
// The NCCL interface of libtutti_cuda.so: collectives on the ranks' GPUs. It shares the interface version of
// backend/cuda_library.hpp.

#include "tutti/comm/communicator.hpp"
#include "tutti/comm/world.hpp"

#include <functional>
#include <memory>
#include <string>

namespace tutti {

// For messages about ranks that wait for each other.
inline constexpr const char* kNcclNetworkRemedy =
    "if hosts do not reach each other, NCCL_SOCKET_IFNAME and NCCL_IB_HCA choose NCCL's network (NCCL_DEBUG=INFO shows "
    "its choice)";

struct NcclOptions {
  int device = 0;
  // Timeout of an operation.
  double deadline_seconds = 300;
  // For tests: multiple ranks use one device. Slow, and one operation at a time.
  bool share_device = false;
  // Called on rank 0 with a line for the user.
  std::function<void(const std::string&)> warn{};
};

struct NcclLibrary {
  std::string (*version)() = nullptr;  // "2.28.9"
  // Each rank uses its own device, or all ranks share one. The streams passed to operations belong to that device and
  // must not be capturing a CUDA graph. Call progress() while a host thread waits for such a stream: it throws if
  // another rank failed, or a hang error if an operation exceeds its deadline; afterwards the communicator cannot be
  // used. Destroy it only when all ranks have completed their operations, since that aborts the operations of other
  // ranks. Collective.
  std::unique_ptr<Communicator> (*make_communicator)(World& world, const NcclOptions& options) = nullptr;
};

extern "C" const NcclLibrary& tutti_nccl_library();

}  // namespace tutti
