#include "gpus.hpp"

#include "tutti/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

namespace tutti {
namespace {

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

std::size_t devices_named_in(const std::string& visible_devices) {
  std::istringstream entries(visible_devices);
  std::size_t named = 0;
  for (std::string entry; std::getline(entries >> std::ws, entry, ',');) {
    const bool is_number = std::isdigit(static_cast<unsigned char>(entry[0])) != 0;
    if (!is_number && !entry.starts_with("GPU-") && !entry.starts_with("MIG-")) break;
    ++named;
  }
  return named;
}

bool misses_gpus(const GpuFacts& facts) {
  return facts.inventory.devices.size() < facts.announced ||
         (facts.inventory.failed && (facts.has_card || facts.has_driver));
}

Findings check_gpus(const GpuFacts& facts) {
  Findings findings;
  if (facts.device == Device::cpu) return findings;
  const CudaInventory& inventory = facts.inventory;
  const auto add = [&](const std::string& text) {
    const auto severity = facts.device == Device::cuda ? Severity::error : Severity::warning;
    findings.add({.severity = severity, .source = ErrorSource::usage, .text = text});
  };
  const auto driver = version_of(inventory.driver_version);
  if (!inventory.devices.empty()) {
    if (!facts.note.empty()) add(facts.note + ": start as many ranks as GPUs, or choose --device cpu");
  } else if (driver.first > 0 && driver < version_of(inventory.runtime_version)) {
    add(fmt::format(
        "the GPU's driver supports CUDA {}, and this build needs {}: update the driver, build with an older "
        "CUDA, or choose --device cpu",
        inventory.driver_version, inventory.runtime_version));
  } else if (facts.has_card && !facts.has_driver) {
    add("this host has an NVIDIA GPU and no driver for it: install and load one (nvidia-smi then lists the GPU), or "
        "choose --device cpu");
  } else if (facts.has_card && !facts.note.empty()) {
    add(facts.note + ": fix that (nvidia-smi shows the state), or choose --device cpu");
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
