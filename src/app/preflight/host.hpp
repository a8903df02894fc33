#pragma once
// Reads the resources and limits of this host and process from /proc and /sys, and checks them against the needs of the
// host's ranks: cores, process limits and clock.

#include "tutti/comm/world.hpp"

#include "../device_choice.hpp"
#include "findings.hpp"

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

struct HostLoad {
  std::string host;
  int ranks = 1;
  std::int64_t threads = 1;       // per part
  std::int64_t busy_threads = 1;  // of all ranks of the host
  Cores cores{};                  // of this rank
  std::optional<double> quota{};  // cores that the control group allows
};
Findings check_cores(const HostLoad& load);
// Warns if ranks share cores and keep them busy while they wait in MPI. `setting` is the value of
// OMPI_MCA_mpi_yield_when_idle.
Findings check_waiting(const HostLoad& load, const std::string& mpi_library, const std::string& setting);

// The limits of this process; empty means no limit.
struct ProcessLimits {
  std::optional<std::int64_t> address_space{};
  std::optional<std::int64_t> file_size{};
  std::optional<std::int64_t> open_files{};
  std::optional<std::int64_t> locked_memory{};
};
ProcessLimits process_limits();

// `local_ranks` is the number of ranks on this host.
Findings check_open_files(const ProcessLimits& limits, int local_ranks);

struct LimitedNeeds {
  bool on_gpu = false;
  bool has_fast_network = false;
  std::int64_t memory_bytes = 0;  // of a rank; 0: unknown
  std::int64_t file_bytes = 0;    // of the largest file that is written; 0: unknown
  std::string largest{};          // the largest layer, as the end of a message
};
Findings check_limits(const ProcessLimits& limits, const LimitedNeeds& needs);

// Warns of hosts whose clock differs from that of rank 0's host by a second or more.
Findings check_clocks(const Hosts& hosts, const std::vector<double>& ahead);
// For each rank, a lower bound of the seconds that its clock is ahead of rank 0's; negative if behind. Collective.
std::vector<double> seconds_ahead(World& world);

}  // namespace tutti
