#pragma once
// What the system tells of this host and of what it allows this process, read from /proc and /sys.

#include <cstdint>
#include <optional>
#include <string>

namespace tutti {

// What a control group leaves this process; empty: it sets no limit.
struct GroupLimits {
  std::optional<double> cores{};
  std::optional<std::int64_t> memory_left{};  // bytes, what the system can take back at once counted as free
};

class Machine {
 public:
  // `root` is put before every path.
  explicit Machine(std::string root = {}) : root_(std::move(root)) {}

  // Bytes that can be had without swapping; empty where nobody says.
  std::optional<std::int64_t> memory_available() const;
  // Of this process's control group and all above it, the tightest.
  GroupLimits group_limits() const;
  bool has_nvidia_card() const;
  bool has_nvidia_driver() const;
  // InfiniBand or the like.
  bool has_fast_network() const;

 private:
  std::string root_;
};

}  // namespace tutti
