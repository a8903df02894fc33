#include "cards.hpp"

#include <fmt/format.h>

#include <charconv>
#include <utility>

namespace tutti {
namespace {

// "12.2"; zeros for what is no version.
std::pair<int, int> version_of(const std::string& text) {
  std::pair<int, int> version{0, 0};
  const char* const end = text.data() + text.size();
  const auto [dot, status] = std::from_chars(text.data(), end, version.first);
  if (status == std::errc{} && dot != end) std::from_chars(dot + 1, end, version.second);
  return version;
}

}  // namespace

Findings judge_cards(const CardFacts& facts) {
  Findings findings;
  if (facts.device == "cpu") return findings;
  const CudaInventory& inventory = facts.inventory;
  const auto add = [&](const std::string& text) {
    const auto severity = facts.device == "cuda" ? Severity::doomed : Severity::warning;
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
