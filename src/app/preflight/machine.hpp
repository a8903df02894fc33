#pragma once
// What the system tells of this host and of what it allows this process, read from /proc and /sys.

#include "tutti/backend/cuda_library.hpp"

#include "../option_values.hpp"
#include "finding.hpp"

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
Findings judge_cards(const CardFacts& facts);

}  // namespace tutti
