#pragma once
// Chooses the ranks that compute on GPUs, and the device of each. Ranks of a host that see the same devices get them in
// order of their ranks. Ranks that would share a device are detected by its UUID, since launchers may hide devices and
// renumber them, and those that NCCL cannot tell apart by their bus ID. Opens no library.

#include "tutti/backend/cuda_library.hpp"
#include "tutti/comm/world.hpp"

#include "run_config.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// `device` may differ between ranks; of the other members the values of rank 0 are used.
struct DeviceRequest {
  Device device = Device::automatic;
  bool share = false;        // ranks may share a device, for tests
  bool allow_mixed = false;  // only some ranks may have a GPU, since all-reduces are staged in host memory
};

// The request and the devices of one rank.
struct DeviceReport {
  DeviceRequest request;
  std::string host;
  std::vector<CudaDevice> visible;  // only name, UUID and bus ID are used
  std::string unavailable_reason;
  bool misses_gpus = false;  // the host, or the launcher, has GPUs that CUDA does not show
};

struct DeviceChoice {
  std::optional<int> device;  // index among the devices that the rank sees; empty: the CPU
  std::string note;           // why `auto` fell back to CPUs, the same for all ranks
  std::string warning;        // of ranks that see too few GPUs to use the links between them, the same for all ranks
};

// Returns one choice per rank. Throws a usage error that names rank, host, device and remedy.
std::vector<DeviceChoice> choose_devices(std::span<const DeviceReport> reports);

// Returns the choice for this rank. Throws the same error on all ranks. Collective.
DeviceChoice choose_device(World& world, const CudaInventory& inventory, const DeviceRequest& request,
                           bool misses_gpus = false);

}  // namespace tutti
