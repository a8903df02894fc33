#pragma once
// Checks the GPUs that a host has, or that its launcher announces, against those that a run can use.

#include "tutti/backend/cuda_library.hpp"

#include "../run_config.hpp"
#include "findings.hpp"
#include "host.hpp"

#include <cstddef>
#include <string>

namespace tutti {

struct GpuFacts {
  Device device = Device::automatic;  // as requested
  std::string note{};                 // why --device auto fell back to CPUs; empty if it did not
  bool has_card = false;
  bool has_driver = false;
  std::size_t announced = 0;  // by CUDA_VISIBLE_DEVICES
  CudaInventory inventory{};
};

// The number of devices in a value of CUDA_VISIBLE_DEVICES, which launchers set. CUDA ignores the rest after the first
// entry that names none, such as -1.
std::size_t devices_named_in(const std::string& visible_devices);
// Whether CUDA shows fewer GPUs than the launcher announced, or none since it failed on a host with a card or driver.
bool misses_gpus(const GpuFacts& facts);
// Reports GPUs that a host has and a run will not use.
Findings check_gpus(const GpuFacts& facts);
// Warns if none of this process's cores is on the NUMA node of its GPU.
Findings check_affinity(const Machine& machine, const CudaDevice& device);

}  // namespace tutti
