#pragma once
// The resources and limits of this host and process: cores, memory, GPUs and networks, from /proc, /sys and the kernel.

#include "tutti/comm/world.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

// Memory that is shared by processes, in bytes.
struct MemoryPool {
  std::string name;         // the same for all processes of a host that share it
  std::int64_t left = 0;    // including memory that can be reclaimed immediately
  int ranks = 0;            // that share it
  std::int64_t wanted = 0;  // by all of them
};

// The limits of this process's control group and its ancestors; empty if they set none.
struct GroupLimits {
  std::optional<double> cores{};  // the tightest limit
  std::vector<MemoryPool> memory{};
};

class Machine {
 public:
  // `root` is put before every path.
  explicit Machine(std::string root = {}) : root_(std::move(root)) {}

  // Bytes that are available without swapping; empty if unknown.
  std::optional<std::int64_t> memory_available() const;
  GroupLimits group_limits() const;
  bool has_nvidia_card() const;
  bool has_nvidia_driver() const;
  // InfiniBand or similar.
  bool has_fast_network() const;
  // The NUMA node of a PCI device ("0000:17:00.0"); empty on hosts with one node, or if it is unknown.
  std::optional<int> numa_node_of(const std::string& pci_bus_id) const;
  // Lists of cores as the system prints them, "0-15,32-47": those of a NUMA node, and those that this process may use.
  std::string cores_of_node(int node) const;
  std::string allowed_cores() const;

 private:
  std::string root_;
};

// The limits of this process; empty means no limit.
struct ProcessLimits {
  std::optional<std::int64_t> address_space{};
  std::optional<std::int64_t> file_size{};
  std::optional<std::int64_t> open_files{};
  std::optional<std::int64_t> locked_memory{};
};
ProcessLimits process_limits();

// The cores that this process and the other ranks of its host may use.

struct Cores {
  int mine = 1;     // that this process is bound to
  int usable = 1;   // by the ranks of this host together
  int present = 1;  // on the host
};

// Whether each thread of this host's ranks can have its own core.
bool has_room_for(const Cores& cores, const World& world, std::int64_t threads_a_rank);
// Collective.
Cores count_cores(World& world);
// The number of threads per rank that prepare batches: an equal share of the cores that the `compute_threads` of this
// host's ranks leave free, and at least one.
int reader_threads_per_rank(const World& world, const Cores& cores, std::int64_t compute_threads);
// The cores per rank on the most crowded host, at least one. Returns the same on all ranks. Collective.
int fewest_cores_per_rank(World& world, const Cores& cores);

}  // namespace tutti
