#pragma once
// What libtutti_cuda.so offers beside backend/cuda_library.hpp: sums over the ranks' GPUs through NCCL. Its
// interface version is that table's.

#include "tutti/comm/communicator.hpp"
#include "tutti/comm/world.hpp"

#include <memory>
#include <string>

namespace tutti {

struct NcclLibrary {
  std::string (*version)() = nullptr;  // "2.28.9"
  // Each rank names a device of its own. Sums go over streams of that device. The communicator may be given
  // up once all ranks have what they summed; one that goes early aborts the others' sums. Collective.
  std::unique_ptr<Communicator> (*make_communicator)(World& world, int device) = nullptr;
};

extern "C" const NcclLibrary& tutti_nccl_library();

}  // namespace tutti
