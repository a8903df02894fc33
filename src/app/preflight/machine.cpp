#include "machine.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// The first word, as a number; empty: there is no such file, or none in it.
std::optional<std::int64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::int64_t number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

// Behind the word that begins a line.
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

// Without one, the first version writes about as many bytes as there are.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;

struct MemoryFiles {
  const char* most;
  const char* used;
  const char* reclaimable;  // the word in memory.stat
};

void add_pool(GroupLimits& limits, const fs::path& folder, const MemoryFiles& files) {
  const auto most = number_in(folder / files.most);
  struct stat status {};
  if (!most || *most >= kNoLimit || ::stat(folder.c_str(), &status) != 0) return;
  const std::int64_t used = number_in(folder / files.used).value_or(0);
  const std::int64_t reclaimable = number_after(folder / "memory.stat", files.reclaimable).value_or(0);
  // Containers see groups of their own by the same path.
  limits.memory.push_back({fmt::format("{}:{}", status.st_dev, status.st_ino), *most - used + reclaimable});
}

void tighten_cores(GroupLimits& limits, std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (quota && period && *quota > 0 && *period > 0) {
    const double cores = static_cast<double>(*quota) / static_cast<double>(*period);
    limits.cores = std::min(limits.cores.value_or(cores), cores);
  }
}

// "max 100000" or "200000 100000"
void tighten_cores(GroupLimits& limits, const fs::path& file) {
  std::ifstream in(file);
  std::int64_t quota = 0;
  std::int64_t period = 0;
  if (in >> quota >> period) tighten_cores(limits, quota, period);
}

// The group's folder and those above it, as far as this process sees them.
template <class Visit>
void for_each_above(const fs::path& mounted, const std::string& group, Visit visit) {
  fs::path below = fs::path(group).relative_path();
  for (;; below = below.parent_path()) {
    visit(mounted / below);
    if (below.empty()) return;
  }
}

// "12.2"; zeros for what is no version.
std::pair<int, int> version_of(const std::string& text) {
  std::pair<int, int> version{0, 0};
  const char* const end = text.data() + text.size();
  const auto [dot, status] = std::from_chars(text.data(), end, version.first);
  if (status == std::errc{} && dot != end) std::from_chars(dot + 1, end, version.second);
  return version;
}

}  // namespace

std::optional<std::int64_t> Machine::memory_available() const {
  const auto kib = number_after(root_ + "/proc/meminfo", "MemAvailable:");
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

// Lines of /proc/self/cgroup: "0::/path" of version 2, "4:memory:/path" and "2:cpu,cpuacct:/path" of version 1.
GroupLimits Machine::group_limits() const {
  const std::string mounted = root_ + "/sys/fs/cgroup";
  GroupLimits limits;
  std::ifstream groups(root_ + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string group = line.substr(second + 1);
    const auto controls = [&](const char* name) { return controllers.find(name) != std::string::npos; };
    if (controllers == ",,") {
      for_each_above(mounted, group, [&](const fs::path& folder) {
        add_pool(limits, folder, {"memory.max", "memory.current", "inactive_file"});
        tighten_cores(limits, folder / "cpu.max");
      });
    }
    if (controls(",memory,")) {
      for_each_above(mounted + "/memory", group, [&](const fs::path& folder) {
        add_pool(limits, folder, {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"});
      });
    }
    if (controls(",cpu,")) {
      for_each_above(mounted + "/cpu", group, [&](const fs::path& folder) {
        tighten_cores(limits, number_in(folder / "cpu.cfs_quota_us"), number_in(folder / "cpu.cfs_period_us"));
      });
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

Findings judge_cards(const CardFacts& facts) {
  Findings findings;
  if (facts.device == Device::cpu) return findings;
  const CudaInventory& inventory = facts.inventory;
  const auto add = [&](const std::string& text) {
    const auto severity = facts.device == Device::cuda ? Severity::doomed : Severity::warning;
    findings.add({.severity = severity, .source = ErrorSource::usage, .text = text});
  };
  const auto driver = version_of(inventory.driver_version);
  if (!inventory.devices.empty()) {
    if (!facts.note.empty()) add(facts.note + ": start as many ranks as GPUs, or choose --device cpu");
  } else if (driver.first > 0 && driver < version_of(inventory.runtime_version)) {
    add(
        fmt::format("the GPU's driver serves CUDA {}, and this build wants {}: update the driver, build with an older "
                    "CUDA, or choose --device cpu",
                    inventory.driver_version, inventory.runtime_version));
  } else if (facts.has_card && !facts.has_driver) {
    add("this host has an NVIDIA GPU and no driver for it: install and load one (nvidia-smi then lists the GPU), or "
        "choose --device cpu");
  } else if (facts.has_card && !facts.note.empty()) {
    add(facts.note + ": see to it (nvidia-smi), or choose --device cpu");
  }
  return findings;
}

}  // namespace tutti
