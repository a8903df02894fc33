#pragma once
// What memory a run will take, by arithmetic alone, against what is there. Estimates are within a quarter of what a
// Trainer then holds.

#include "tutti/comm/world.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/train/trainer.hpp"

#include "../run_config.hpp"
#include "finding.hpp"
#include "machine.hpp"

#include <cstdint>
#include <optional>

namespace tutti {

// Of one rank, in bytes.
struct MemoryEstimate {
  std::int64_t network = 0;     // as Trainer::memory_bytes(): weights, gradients, optimizer state, activations
  std::int64_t copies = 0;      // weights as layers want them, batches prepared ahead, states kept and saved
  std::int64_t checkpoint = 0;  // on disk

  std::int64_t together() const { return network + copies; }
};

struct EstimateRequest {
  const Network& network;
  const TrainerOptions& options;
  const RunConfig& config;
  int rank = 0;
  int ranks = 1;
  std::int64_t test_samples = 0;
};
MemoryEstimate estimate_memory(const EstimateRequest& request);

struct MemoryAtHand {
  std::string host;
  int local_ranks = 1;
  std::int64_t host_bytes = 0;               // that the host's ranks want of its memory together
  std::optional<std::int64_t> available{};   // on the host
  std::optional<std::int64_t> group_left{};  // of the control group
  std::int64_t device_bytes = 0;             // that this rank wants on its GPU
  std::optional<std::int64_t> device_free{};
};
Findings judge_memory(const MemoryAtHand& memory);
// Of what the host's ranks each want of its memory, the sum. Collective.
std::int64_t sum_over_host(World& world, const Hosts& hosts, std::int64_t mine);

}  // namespace tutti
