#include "host.hpp"

#include "tutti/base/error.hpp"
#include "tutti/watch/rank_clocks.hpp"

#include "../output.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// The number at the beginning of a file; empty if there is no such file or number.
std::optional<std::int64_t> read_number(const fs::path& file) {
  std::ifstream in(file);
  std::int64_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

// The number after the word that begins a line.
std::optional<std::int64_t> number_after(const fs::path& file, std::string_view word) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string first;
    std::int64_t number = 0;
    if (words >> first >> number && first == word) return number;
  }
  return std::nullopt;
}

// Control groups of version 1 show about 2^63 bytes if there is no limit.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;

// Adds the limits in a control group's folder. Its files have other names in version 1.
void add_limits(GroupLimits& limits, const fs::path& folder) {
  const auto either = [&](const char* name, const char* name_v1) {
    const auto number = read_number(folder / name);
    return number ? number : read_number(folder / name_v1);
  };
  const auto limit = either("memory.max", "memory.limit_in_bytes");
  struct stat status {};
  if (limit && *limit < kNoLimit && ::stat(folder.c_str(), &status) == 0) {
    const std::int64_t used = either("memory.current", "memory.usage_in_bytes").value_or(0);
    auto reclaimable = number_after(folder / "memory.stat", "total_inactive_file");
    if (!reclaimable) reclaimable = number_after(folder / "memory.stat", "inactive_file");
    // The path is not unique, since each container has its own group at the same path.
    limits.memory.push_back(
        {fmt::format("{}:{}", status.st_dev, status.st_ino), *limit - used + reclaimable.value_or(0)});
  }
  std::int64_t quota = 0;
  std::int64_t period = 0;
  if (!(std::ifstream(folder / "cpu.max") >> quota >> period)) {  // "max 100000" if there is no limit
    quota = read_number(folder / "cpu.cfs_quota_us").value_or(0);
    period = read_number(folder / "cpu.cfs_period_us").value_or(0);
  }
  if (quota <= 0 || period <= 0) return;
  const double cores = static_cast<double>(quota) / static_cast<double>(period);
  limits.cores = std::min(limits.cores.value_or(cores), cores);
}

constexpr std::int64_t kFewLockedBytes = std::int64_t{64} << 20;
constexpr double kClockSeconds = 1;

}  // namespace

std::optional<std::int64_t> Machine::memory_available() const {
  const auto kib = number_after(root_ + "/proc/meminfo", "MemAvailable:");
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

// Lines of /proc/self/cgroup: "0::/path" of version 2, "4:memory:/path" and "2:cpu,cpuacct:/path" of version 1, which
// has a folder for each controller.
GroupLimits Machine::group_limits() const {
  GroupLimits limits;
  std::ifstream groups(root_ + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    for (const std::string controller : {"", "memory", "cpu"}) {
      if (controllers.find("," + controller + ",") == std::string::npos) continue;
      // The group's folder and those above it that this process can see.
      for (fs::path group = fs::path(line.substr(second + 1)).relative_path();; group = group.parent_path()) {
        add_limits(limits, fs::path(root_ + "/sys/fs/cgroup") / controller / group);
        if (group.empty()) break;
      }
    }
  }
  return limits;
}

// PCI classes 0300 and 0302 are display and 3D controllers.
bool Machine::has_nvidia_card() const {
  std::error_code failure;
  for (fs::directory_iterator device(root_ + "/sys/bus/pci/devices", failure), end; !failure && device != end;
       device.increment(failure)) {
    std::string vendor;
    std::string kind;
    std::ifstream(device->path() / "vendor") >> vendor;
    std::ifstream(device->path() / "class") >> kind;
    if (vendor == "0x10de" && kind.starts_with("0x03")) return true;
  }
  return false;
}

bool Machine::has_nvidia_driver() const {
  std::error_code unknown;
  return fs::exists(root_ + "/proc/driver/nvidia/version", unknown);
}

bool Machine::has_fast_network() const {
  std::error_code absent;
  return fs::directory_iterator(root_ + "/sys/class/infiniband", absent) != fs::directory_iterator();
}

// The file holds -1 if the host has one node.
std::optional<int> Machine::numa_node_of(const std::string& pci_bus_id) const {
  const auto node = read_number(root_ + "/sys/bus/pci/devices/" + pci_bus_id + "/numa_node");
  return node && *node >= 0 ? std::optional(static_cast<int>(*node)) : std::nullopt;
}

std::string Machine::cores_of_node(int node) const {
  std::string cores;
  std::ifstream(root_ + fmt::format("/sys/devices/system/node/node{}/cpulist", node)) >> cores;
  return cores;
}

std::string Machine::allowed_cores() const {
  std::ifstream file(root_ + "/proc/self/status");
  std::string word;
  while (file >> word && word != "Cpus_allowed_list:") continue;
  file >> word;
  return file ? word : "";
}

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

ProcessLimits process_limits() {
  const auto limit_of = [](auto resource) -> std::optional<std::int64_t> {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
    return static_cast<std::int64_t>(limit.rlim_cur);
  };
  return {.address_space = limit_of(RLIMIT_AS),
          .file_size = limit_of(RLIMIT_FSIZE),
          .open_files = limit_of(RLIMIT_NOFILE),
          .locked_memory = limit_of(RLIMIT_MEMLOCK)};
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

}  // namespace tutti
