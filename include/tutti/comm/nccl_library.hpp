#pragma once
// What libtutti_cuda.so offers beside backend/cuda_library.hpp: sums over the ranks' GPUs through NCCL. Its
// interface version is that table's.

#include "tutti/comm/communicator.hpp"
#include "tutti/comm/world.hpp"

#include <memory>
#include <string>

namespace tutti {

struct NcclOptions {
  int device = 0;
  // How long an operation may take before this rank gives up on its peers.
  double deadline_seconds = 300;
  // Several ranks use one device, for tests: slow, and one sum at a time.
  bool share_device = false;
};

struct NcclLibrary {
  std::string (*version)() = nullptr;  // "2.28.9"
  // Each rank names a device of its own, or all share one. Sums use streams of that device, none of which may be noting
  // a recording then. progress() wants to be called while a host thread waits for such a stream: it is what throws when
  // another rank failed, or a hang error once a sum outlives its deadline; from then on the communicator is of no use.
  // It may be given up once all ranks have what they summed; one that goes early aborts the others' sums. Collective.
  std::unique_ptr<Communicator> (*make_communicator)(World& world, const NcclOptions& options) = nullptr;
};

extern "C" const NcclLibrary& tutti_nccl_library();

}  // namespace tutti
