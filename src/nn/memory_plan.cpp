#include "memory_plan.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace tutti {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + MemoryPlan::kAlignment - 1) / MemoryPlan::kAlignment * MemoryPlan::kAlignment;
}

bool overlap(const BlockLifetime& a, const BlockLifetime& b) { return a.begin <= b.end && b.begin <= a.end; }

struct Placed {
  std::size_t begin;
  std::size_t end;
};

// The start of the narrowest gap between `neighbours` that holds `bytes`, or the end of them all.
std::size_t best_fit(std::vector<Placed>& neighbours, std::size_t bytes) {
  std::ranges::sort(neighbours, {}, &Placed::begin);
  std::size_t best = 0;
  std::size_t narrowest = std::numeric_limits<std::size_t>::max();
  std::size_t free_from = 0;
  for (const Placed& placed : neighbours) {
    if (placed.begin >= free_from + bytes && placed.begin - free_from < narrowest) {
      narrowest = placed.begin - free_from;
      best = free_from;
    }
    free_from = std::max(free_from, placed.end);
  }
  return narrowest == std::numeric_limits<std::size_t>::max() ? free_from : best;
}

// Blocks in the order in which they are to be placed: those with the greatest measure first.
template <class Measure>
std::vector<std::size_t> ordered(std::span<const BlockLifetime> blocks, Measure measure) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>{}, [&](std::size_t block) { return measure(blocks[block]); });
  return order;
}

}  // namespace

// Two ways to begin: with what is hard to place for its size, which suits evaluation, or with what lives longest, which
// stacks up the activations of training. The better one counts.
MemoryPlan::MemoryPlan(std::span<const BlockLifetime> blocks) {
  place(blocks, ordered(blocks, [](const BlockLifetime& block) { return block.bytes; }));
  MemoryPlan other;
  other.place(blocks, ordered(blocks, [](const BlockLifetime& block) { return block.end - block.begin; }));
  if (other.bytes_ < bytes_) *this = std::move(other);
}

void MemoryPlan::place(std::span<const BlockLifetime> blocks, std::span<const std::size_t> order) {
  offsets_.resize(blocks.size());
  std::vector<Placed> neighbours;
  for (std::size_t done = 0; done < order.size(); ++done) {
    const std::size_t block = order[done];
    neighbours.clear();
    for (const std::size_t other : order.first(done)) {
      if (!overlap(blocks[block], blocks[other])) continue;
      neighbours.push_back({offsets_[other], offsets_[other] + aligned(blocks[other].bytes)});
    }
    const std::size_t bytes = aligned(blocks[block].bytes);
    offsets_[block] = best_fit(neighbours, bytes);
    bytes_ = std::max(bytes_, offsets_[block] + bytes);
  }
}

}  // namespace tutti
