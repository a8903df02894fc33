#pragma once
// Sums over the ranks' GPUs by NCCL's all-reduce, on a stream of its own beside the one that computes.

#include "tutti/comm/nccl_library.hpp"

#include <memory>
#include <string>

namespace tutti::nccl {

std::string version();
// Collective.
std::unique_ptr<Communicator> make_communicator(World& world, const NcclOptions& options);

}  // namespace tutti::nccl
