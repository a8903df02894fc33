#pragma once
// The GPU that a rank of a test uses: its own, or the first one for all ranks if there are not enough.

#include "tutti/backend/cuda_library.hpp"
#include "tutti/comm/nccl_library.hpp"

#include "support/mpi_world.hpp"

namespace tutti {

inline NcclOptions gpu_of_rank() {
  const auto devices = static_cast<int>(tutti_cuda_library().query().devices.size());
  const bool enough = devices >= test_world().size();
  return {.device = enough ? test_world().rank() : 0, .share_device = !enough};
}

inline Backend& backend_of_rank() {
  static const auto backend = tutti_cuda_library().make_backend({.device = gpu_of_rank().device});
  return *backend;
}

}  // namespace tutti
