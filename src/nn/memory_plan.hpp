#pragma once
// Where blocks of memory with known lifetimes lie in one arena, so that those that never live at once share it. Knows
// neither layers nor passes; allocates nothing.

#include <cstddef>
#include <span>
#include <vector>

namespace tutti {

struct BlockLifetime {
  std::size_t bytes = 0;
  // The first and the last moment at which the block must keep its contents.
  int begin = 0;
  int end = 0;
};

class MemoryPlan {
 public:
  static constexpr std::size_t kAlignment = 64;

  MemoryPlan() = default;
  explicit MemoryPlan(std::span<const BlockLifetime> blocks);

  std::size_t bytes() const noexcept { return bytes_; }
  // A multiple of kAlignment.
  std::size_t offset(std::size_t block) const { return offsets_.at(block); }

 private:
  void place(std::span<const BlockLifetime> blocks, std::span<const std::size_t> order);

  std::vector<std::size_t> offsets_;
  std::size_t bytes_ = 0;
};

}  // namespace tutti
