#include "host.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/watch/rank_clocks.hpp"

#include "../output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

namespace tutti {
namespace {

constexpr std::int64_t kFewLockedBytes = std::int64_t{64} << 20;
constexpr double kClockSeconds = 1;

// Parses "12.2"; zeros if the text is not a version.
std::pair<int, int> version_of(const std::string& text) {
  std::pair<int, int> version{0, 0};
  char dot = 0;
  std::istringstream(text) >> version.first >> dot >> version.second;
  return version;
}

// The cores of a list as the system prints it: "0-3,8".
std::set<int> cores_in(const std::string& list) {
  std::set<int> cores;
  for (const std::string& range : split(list, ',')) {
    std::istringstream ends(range);
    int first = 0;
    int last = 0;
    char dash = 0;
    if (!(ends >> first)) continue;
    if (!(ends >> dash >> last)) last = first;
    for (int core = first; core <= last; ++core) cores.insert(core);
  }
  return cores;
}

}  // namespace

Findings check_cores(const HostLoad& load) {
  Findings findings;
  const Cores& cores = load.cores;
  if (cores.mine < load.threads && cores.mine < cores.present) {
    findings.warn(
        "bound to {} of the host's {} cores, but --threads is {}: start mpirun with --bind-to none, or srun with "
        "--cpus-per-task {}",
        cores.mine, cores.present, load.threads, load.threads);
  }
  const std::string crowd = fmt::format("{}: {} {} with {} threads", load.host, plural(load.ranks, "rank"),
                                        load.ranks == 1 ? "computes" : "compute", load.busy_threads);
  if (load.busy_threads > cores.usable) {
    const bool is_bound = cores.usable < cores.present;
    findings.warn("{} on {} of {} cores: {}", crowd, cores.usable, cores.present,
                  is_bound ? "let the launcher bind them to more cores (mpirun --bind-to none)"
                           : "start fewer ranks there, or give fewer --threads");
  }
  if (load.quota && static_cast<double>(load.busy_threads) > *load.quota + 0.5) {
    findings.warn(
        "{}, but their control group allows {:.1f} cores: ask for more (docker --cpus, Slurm's --cpus-per-task), or "
        "give fewer --threads",
        crowd, *load.quota);
  }
  return findings;
}

Findings check_waiting(const HostLoad& load, const std::string& mpi_library, const std::string& setting) {
  Findings findings;
  const bool yields = setting == "1" || setting == "true";
  if (load.ranks > load.cores.usable && mpi_library.starts_with("Open MPI") && !yields) {
    findings.warn(
        "{}: {} ranks on {} cores keep their cores busy while they wait: export OMPI_MCA_mpi_yield_when_idle=1",
        load.host, load.ranks, load.cores.usable);
  }
  return findings;
}

Findings check_open_files(const ProcessLimits& limits, int local_ranks) {
  Findings findings;
  // For the MPI library and its connections, and the shared memory of the other ranks.
  const std::int64_t files = 128 + 4 * std::int64_t{local_ranks};
  if (limits.open_files && *limits.open_files < files) {
    findings.warn(
        "only {} files may be open at once (ulimit -n), and each of {} ranks on a host needs {}: raise that limit",
        *limits.open_files, local_ranks, files);
  }
  return findings;
}

Findings check_limits(const ProcessLimits& limits, const LimitedNeeds& needs) {
  Findings findings;
  if (limits.address_space && needs.memory_bytes > *limits.address_space) {
    findings.fail(ErrorSource::input,
                  "a rank needs about {:.0f} MiB, and the limit is {:.0f} MiB (ulimit -v): raise that limit, or "
                  "give a smaller --batch-size{}",
                  mebi(needs.memory_bytes), mebi(*limits.address_space), needs.largest);
  } else if (limits.address_space && needs.on_gpu) {
    findings.warn(
        "the address space is limited to {:.0f} MiB (ulimit -v), and CUDA reserves much more than it uses: ulimit -v "
        "unlimited",
        mebi(*limits.address_space));
  }
  if (limits.file_size && needs.file_bytes > *limits.file_size) {
    findings.fail(
        ErrorSource::save,
        "a checkpoint takes about {:.1f} MiB, and files are limited to {:.1f} MiB (ulimit -f): raise that limit",
        mebi(needs.file_bytes), mebi(*limits.file_size));
  }
  if (limits.locked_memory && *limits.locked_memory < kFewLockedBytes && (needs.on_gpu || needs.has_fast_network)) {
    findings.warn(
        "only {:.1f} MiB may be locked in memory (ulimit -l), and NCCL and fast networks need more: ulimit -l "
        "unlimited",
        mebi(*limits.locked_memory));
  }
  return findings;
}

Findings check_clocks(const Hosts& hosts, const std::vector<double>& ahead) {
  Findings findings;
  std::set<std::string> named{hosts.front()};
  for (std::size_t rank = 1; rank < hosts.size(); ++rank) {
    if (std::abs(ahead[rank]) <= kClockSeconds || !named.insert(hosts[rank]).second) continue;
    findings.warn(
        "the clock of {} is {:.1f} s {} that of {}: synchronize both (chrony, ntp), or their logs show "
        "another order of events",
        hosts[rank], std::abs(ahead[rank]), ahead[rank] > 0 ? "ahead of" : "behind", hosts.front());
  }
  return findings;
}

std::vector<double> seconds_ahead(World& world) {
  const ClockReading mine = measure_clock_offset(
      world, [] { return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count(); });
  const auto lower_bound = static_cast<double>(std::max<std::int64_t>(0, std::abs(mine.offset_ns) - mine.error_ns));
  std::vector<double> ahead;
  for (const auto& figures : all_gather_doubles(world, {std::copysign(lower_bound, mine.offset_ns) / 1e9})) {
    ahead.push_back(figures.front());
  }
  return ahead;
}

Findings check_gpus(const GpuFacts& facts, const std::string& note) {
  Findings findings;
  if (facts.device == Device::cpu) return findings;
  const CudaInventory& inventory = facts.inventory;
  const auto add = [&](const std::string& text) {
    const auto severity = facts.device == Device::cuda ? Severity::error : Severity::warning;
    findings.add({.severity = severity, .source = ErrorSource::usage, .text = text});
  };
  const auto driver = version_of(inventory.driver_version);
  if (!inventory.devices.empty()) {
    if (!note.empty()) add(note + ": start as many ranks as GPUs, or choose --device cpu");
  } else if (driver.first > 0 && driver < version_of(inventory.runtime_version)) {
    add(fmt::format(
        "the GPU's driver supports CUDA {}, and this build needs {}: update the driver, build with an older "
        "CUDA, or choose --device cpu",
        inventory.driver_version, inventory.runtime_version));
  } else if (facts.has_card && !facts.has_driver) {
    add("this host has an NVIDIA GPU and no driver for it: install and load one (nvidia-smi then lists the GPU), or "
        "choose --device cpu");
  } else if (facts.has_card && !note.empty()) {
    add(note + ": fix that (nvidia-smi shows the state), or choose --device cpu");
  }
  return findings;
}

Findings check_affinity(const Machine& machine, const CudaDevice& device) {
  Findings findings;
  const std::optional<int> node = machine.numa_node_of(device.pci_bus_id);
  if (!node) return findings;
  const std::string own = machine.allowed_cores();
  const std::string near = machine.cores_of_node(*node);
  const std::set<int> near_cores = cores_in(near);
  const auto is_near = [&](int core) { return near_cores.contains(core); };
  if (own.empty() || near_cores.empty() || std::ranges::any_of(cores_in(own), is_near)) return findings;
  findings.warn(
      "bound to the cores {}, and the GPU ({}, {}) is on NUMA node {} with the cores {}, so that copies and launches "
      "are slower: bind the rank to cores of that node (mpirun --map-by numa, srun --cpu-bind=map_ldom:...), or not at "
      "all "
      "(--bind-to none, --cpu-bind=none)",
      own, device.name, device.pci_bus_id, *node, near);
  return findings;
}

}  // namespace tutti
