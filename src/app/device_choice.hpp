#pragma once
// Which ranks compute on GPUs, and on which: the only one a rank sees, else its turn among the ranks that see the same.
// Ranks that would share a device are found by its UUID, since counts and numbers mean little where launchers
// hide devices. Opens no library.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/cuda_library.hpp"
#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"

#include "run_config.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// `device` is each rank's own; of the others rank 0's count.
struct DeviceRequest {
  Device device = Device::automatic;
  bool share = false;  // ranks may use one device together, for tests
  bool mixed = false;  // ranks with and without a GPU may train together, since sums go through the host's memory
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

// What processors choose by measuring: chosen by one rank of each kind of processor, used by all its like, kept in
// checkpoints and, where asked for, in a file.

// What the checkpoint holds, or else the file of --plan-cache. To be called before any layer is made. Collective.
void adopt_known_choices(World& world, const RunConfig& config, const std::string& of_checkpoint, Backend& backend,
                         const Log& log);

// `build` makes every layer that the run will need: first on the first rank of each kind of processor, then on the
// others with what was chosen there. What was not in the file of --plan-cache is added to it. Collective.
void build_alike(World& world, const RunConfig& config, Backend& backend, const std::function<void()>& build);

// The processor cores that this process and its neighbours on the host may use.

struct Cores {
  int mine = 1;     // this process is bound to so many
  int usable = 1;   // by the ranks of this host together
  int present = 1;  // on the host
};

// Whether each thread of this host's ranks can have a core of its own.
bool has_room_for(const Cores& cores, const World& world, std::int64_t threads_a_rank);
// Collective.
Cores count_cores(World& world);
// How many threads of each rank of this host prepare batches: the cores that `compute_threads` a rank leave over,
// shared out, and at least one.
int budget_readers(const World& world, const Cores& cores, std::int64_t compute_threads);
// The cores that each rank of the most crowded host can have, one at least: the same on every rank. Collective.
int fewest_cores_per_rank(World& world, const Cores& cores);

}  // namespace tutti
