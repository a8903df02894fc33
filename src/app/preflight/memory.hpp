#pragma once
// What memory a run will take, by arithmetic alone, against what is there. Estimates are within a quarter of what a
// Trainer then holds.

#include "tutti/comm/world.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/storage/train_state.hpp"
#include "tutti/train/trainer.hpp"

#include "../run_config.hpp"
#include "findings.hpp"
#include "host.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// Of one rank, in bytes.
struct MemoryEstimate {
  std::int64_t network = 0;     // as Trainer::memory_bytes(): weights, gradients, optimizer state, activations
  std::int64_t copies = 0;      // weights as layers want them, batches prepared ahead, states kept and saved
  std::int64_t checkpoint = 0;  // on disk
  std::int64_t file = 0;        // of it, what this rank saves

  std::int64_t together() const { return network + copies; }
};

struct EstimateRequest {
  const Network& network;
  const TrainerOptions& options;
  const RunConfig& config;
  int rank = 0;
  int ranks = 1;
  std::int64_t test_samples = 0;
  std::optional<FileShare> share{};  // of every checkpoint, saved by this rank
};
MemoryEstimate estimate_memory(const EstimateRequest& request);

// Of a pool, how many ranks share it and what they want of it together.
struct SharedMemory {
  int ranks = 1;
  std::int64_t wanted = 0;
  std::int64_t left = 0;
};
// Of pools that this rank has, where it wants so many bytes of each. Collective.
std::vector<SharedMemory> share_pools(World& world, const std::vector<MemoryPool>& pools, std::int64_t wanted);

struct MemoryAtHand {
  std::string host;
  std::optional<SharedMemory> of_host{};
  std::vector<SharedMemory> of_groups{};
  std::int64_t device_bytes = 0;  // that this rank wants on its GPU
  std::optional<std::int64_t> device_free{};
  std::string largest{};  // layer, in words
};
Findings check_memory(const MemoryAtHand& memory);

// The layer with the most weights and output: "dense1: 256x784 weights, 0.8 MiB; output 256 of 32 images, 0.0 MiB".
std::string largest_layer(const Network& network, std::int64_t samples);

struct JobMemory {
  MemoryEstimate estimate;
  std::int64_t most = 0;  // that this rank may have
  Findings findings;
};
// What all ranks want of this host's memory and of their processes' limits; of a GPU's, where it is known how much is
// free there. Collective.
JobMemory check_job_memory(World& world, const EstimateRequest& request, const Machine& machine, bool on_gpu,
                           std::optional<std::int64_t> device_free = {});

}  // namespace tutti
