#pragma once
// On which processor each rank computes, and what adds their gradients up: the words of --device, --comm and what goes
// with them, for the machine at hand.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/cuda_library.hpp"
#include "tutti/base/log.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/comm/world.hpp"

#include "run_config.hpp"

#include <functional>
#include <memory>
#include <string>

namespace tutti {

struct ChosenProcessor {
  std::unique_ptr<Backend> backend;
  int device = -1;             // the GPU's number; below 0: the CPU
  bool all_on_gpus = false;    // every rank of the world
  bool shares_device = false;  // with other ranks, as asked for
  std::string note{};          // why ranks left free to choose did not take GPUs

  bool is_gpu() const { return device >= 0; }
};

// A library that is not there, or cannot be opened, is a reason to have no GPU.
CudaInventory look_for_gpus(const std::string& device);

// Says in one line why --device auto did not take GPUs. Throws alike on all ranks. Collective.
ChosenProcessor choose_processor(World& world, const RunConfig& config, const Log& log);

// `spare_core`: a core that no thread of this host computes on. Collective.
std::unique_ptr<Communicator> choose_communicator(World& world, const RunConfig& config,
                                                  const ChosenProcessor& processor, bool spare_core);

// For work that sums over ranks. A rank that gives up its communicator before the others have the last sum may cut that
// off, so none leaves alone: neither with the work done nor with an error that all share. Collective.
void end_together(World& world, const std::function<void()>& work);

}  // namespace tutti
