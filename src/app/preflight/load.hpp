#pragma once
// What a host's ranks ask of its cores, of the limits of their processes and of its clock, against what is there.

#include "tutti/comm/world.hpp"
#include "tutti/data/dataset.hpp"

#include "../processors.hpp"
#include "../run_config.hpp"
#include "finding.hpp"
#include "machine.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

struct HostLoad {
  std::string host;
  int ranks = 1;
  std::int64_t threads = 1;       // of each part
  std::int64_t busy_threads = 1;  // of all ranks of the host
  Cores cores{};                  // of this rank
  std::optional<double> quota{};  // of cores, by the control group
};
Findings judge_cores(const HostLoad& load);
// Whether ranks that wait in the MPI library leave their core to others; `setting` is Open MPI's, as the environment
// has it.
Findings judge_waiting(const HostLoad& load, const std::string& mpi_library, const std::string& setting);

// Of the process; empty: none.
struct ProcessLimits {
  std::optional<std::int64_t> address_space{};
  std::optional<std::int64_t> file_size{};
  std::optional<std::int64_t> open_files{};
  std::optional<std::int64_t> locked_memory{};
};
ProcessLimits process_limits();

struct LimitedNeeds {
  int local_ranks = 1;
  bool on_gpu = false;
  bool has_fast_network = false;
  std::int64_t memory_bytes = 0;  // of a rank; 0: not known
  std::int64_t file_bytes = 0;    // of the largest file that is written; likewise
  std::string largest{};          // layer, in words
};
Findings judge_limits(const ProcessLimits& limits, const LimitedNeeds& needs);

// Names hosts whose clock is a second or more from that of rank 0's host.
Findings judge_clocks(const Hosts& hosts, const std::vector<double>& ahead);
// Of each rank's clock, how much it is ahead of rank 0's at least; negative, behind. Collective.
std::vector<double> seconds_ahead(World& world);

// Classes of the training set that no sample has.
Findings check_classes(const DatasetInfo& train);

// Parts that are empty or too small for their statistics.
// A learning rate of 0, which leaves the weights as they are, and options of a schedule that have no effect. `planned`
// steps, of which the schedule covers `scheduled`.
Findings judge_rates(const RunConfig& config, std::int64_t planned, std::int64_t scheduled);
Findings judge_parts(const RunConfig& config, bool has_batch_norm);

}  // namespace tutti
