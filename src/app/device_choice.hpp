#pragma once
// Which ranks compute on GPUs, and on which: the only one a rank sees, else its turn among the ranks that see the same.
// Ranks that would meet on one device are told apart by its UUID, since counts and numbers mean little where launchers
// hide devices. Opens no library.

#include "tutti/backend/cuda_library.hpp"
#include "tutti/comm/world.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// `device` is each rank's own; of the others rank 0's count.
struct DeviceRequest {
  std::string device = "auto";  // auto, cpu or cuda
  bool share = false;           // ranks may use one device together, for tests
  bool mixed = false;           // ranks with and without a GPU may meet, since sums go through the host's memory
};

// What one rank brings.
struct DeviceClaim {
  DeviceRequest request;
  std::string host;
  std::vector<CudaDevice> visible;  // name and UUID count
  std::string why_none;
};

struct DeviceChoice {
  std::optional<int> device;  // among those the rank sees; none: its processor
  std::string note;           // why `auto` came to processors, the same for all ranks
};

// One choice per rank. Throws a usage error that names rank, host, device and remedy.
std::vector<DeviceChoice> choose_devices(std::span<const DeviceClaim> claims);

// For this rank, from what all of them see; what is thrown is thrown on all. Collective.
DeviceChoice choose_device(World& world, const CudaInventory& inventory, const DeviceRequest& request);

}  // namespace tutti
