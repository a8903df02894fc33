#pragma once
// Checks the cores, GPUs, process limits and clocks of hosts against the needs of their ranks.

#include "tutti/backend/cuda_library.hpp"
#include "tutti/comm/world.hpp"

#include "../findings.hpp"
#include "../machine.hpp"
#include "../processors.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

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

// Reports GPUs that a host has and a run will not use. `note` is why --device auto fell back to CPUs; empty if it did
// not.
Findings check_gpus(const GpuFacts& facts, const std::string& note);
// Warns if none of this process's cores is on the NUMA node of its GPU.
Findings check_affinity(const Machine& machine, const CudaDevice& device);

}  // namespace tutti
