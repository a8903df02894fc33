#pragma once
// What the system tells of this host and of what it allows this process, read from /proc and /sys; and what the host's
// ranks ask of its GPUs, its cores, the limits of their processes and its clock, against what is there.

#include "tutti/backend/cuda_library.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/data/dataset.hpp"

#include "../processors.hpp"
#include "../run_config.hpp"
#include "findings.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

// Memory that processes share.
struct MemoryPool {
  std::string name;       // the same for those of one host that share it
  std::int64_t left = 0;  // bytes, what the system can take back at once counted as free
};

// What this process's control group and those above it leave it; empty: they set no limit.
struct GroupLimits {
  std::optional<double> cores{};  // of the tightest
  std::vector<MemoryPool> memory{};
};

class Machine {
 public:
  // `root` is put before every path.
  explicit Machine(std::string root = {}) : root_(std::move(root)) {}

  // Bytes that can be had without swapping; empty where nobody says.
  std::optional<std::int64_t> memory_available() const;
  GroupLimits group_limits() const;
  bool has_nvidia_card() const;
  bool has_nvidia_driver() const;
  // InfiniBand or the like.
  bool has_fast_network() const;

 private:
  std::string root_;
};

// GPUs that a host has and a run will not use, and why.
struct CardFacts {
  Device device = Device::automatic;  // as asked for
  std::string note{};                 // why ranks left free to choose came to processors; empty: they did not
  bool has_card = false;
  bool has_driver = false;
  CudaInventory inventory{};
};
Findings check_gpus(const CardFacts& facts);

struct HostLoad {
  std::string host;
  int ranks = 1;
  std::int64_t threads = 1;       // of each part
  std::int64_t busy_threads = 1;  // of all ranks of the host
  Cores cores{};                  // of this rank
  std::optional<double> quota{};  // of cores, by the control group
};
Findings check_cores(const HostLoad& load);
// Whether ranks that wait in the MPI library leave their core to others; `setting` is Open MPI's, as the environment
// has it.
Findings check_waiting(const HostLoad& load, const std::string& mpi_library, const std::string& setting);

// Of the process; empty: none.
struct ProcessLimits {
  std::optional<std::int64_t> address_space{};
  std::optional<std::int64_t> file_size{};
  std::optional<std::int64_t> open_files{};
  std::optional<std::int64_t> locked_memory{};
};
ProcessLimits process_limits();

// For ranks that share a host.
Findings check_open_files(const ProcessLimits& limits, int local_ranks);

struct LimitedNeeds {
  bool on_gpu = false;
  bool has_fast_network = false;
  std::int64_t memory_bytes = 0;  // of a rank; 0: not known
  std::int64_t file_bytes = 0;    // of the largest file that is written; likewise
  std::string largest{};          // layer, in words
};
Findings check_limits(const ProcessLimits& limits, const LimitedNeeds& needs);

// Names hosts whose clock is a second or more from that of rank 0's host.
Findings check_clocks(const Hosts& hosts, const std::vector<double>& ahead);
// Of each rank's clock, how much it is ahead of rank 0's at least; negative, behind. Collective.
std::vector<double> seconds_ahead(World& world);

// Classes of the training set that no sample has.
Findings check_classes(const DatasetInfo& train);

// Parts that are empty or too small for their statistics.
// A learning rate of 0, which leaves the weights as they are, and options of a schedule that have no effect. `planned`
// steps, of which the schedule covers `scheduled`.
Findings check_rates(const RunConfig& config, std::int64_t planned, std::int64_t scheduled);
Findings check_parts(const RunConfig& config, bool has_batch_norm);

}  // namespace tutti
