#include "machine.hpp"

#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"
#include "tutti/storage/atomic_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

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

bool Machine::has_nvidia_driver() const { return file_exists(root_ + "/proc/driver/nvidia/version"); }

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

bool has_room_for(const Cores& cores, const World& world, std::int64_t threads_a_rank) {
  return threads_a_rank * world.local_size() <= cores.usable;
}

Cores count_cores(World& world) {
  std::vector<int> mine = allowed_cores();
  if (mine.empty()) mine = {0};  // unknown
  std::set<int> together;
  const std::string of_host = world.host() + "\n";
  for (const std::string& entry : all_gather_text(world, fmt::format("{}{}", of_host, fmt::join(mine, ",")))) {
    if (!entry.starts_with(of_host)) continue;
    for (const int core : parse_numbers<int>(entry.substr(of_host.size()))) together.insert(core);
  }
  return {.mine = static_cast<int>(mine.size()),
          .usable = static_cast<int>(together.size()),
          .present = std::max(1, static_cast<int>(std::thread::hardware_concurrency()))};
}

int reader_threads_per_rank(const World& world, const Cores& cores, std::int64_t compute_threads) {
  constexpr std::int64_t kMaxReaders = 4;
  const std::int64_t spare = cores.usable - compute_threads * world.local_size();
  return static_cast<int>(std::clamp<std::int64_t>(spare / world.local_size(), 1, kMaxReaders));
}

int fewest_cores_per_rank(World& world, const Cores& cores) {
  const double mine = std::max(1, cores.usable / world.local_size());
  return static_cast<int>(-max_over_ranks(world, {-mine}).front());
}

}  // namespace tutti
