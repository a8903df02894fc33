#pragma once
// Adds up what the components of a run will allocate, and compares it with the memory available.

#include "tutti/comm/world.hpp"
#include "tutti/storage/train_state.hpp"
#include "tutti/train/replica.hpp"

#include "../findings.hpp"
#include "../machine.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// For one rank, in bytes.
struct MemoryEstimate {
  std::int64_t network = 0;      // as Trainer::memory_bytes(): weights, gradients, optimizer state, activations
  std::int64_t activations = 0;  // included in it
  std::int64_t copies = 0;       // weights in the layers' format, prefetched batches, states being saved
  std::int64_t batches = 0;      // included in it
  std::int64_t checkpoint = 0;   // on disk
  std::int64_t file = 0;         // the share of the checkpoint that this rank saves

  std::int64_t total() const { return network + copies; }
};

// What a rank copies of the state.
struct StateCopies {
  std::optional<FileShard> shard{};  // of every checkpoint, if it saves one
  int kept = 0;                      // whole states at once, if it keeps them for its host
};
MemoryEstimate estimate_memory(const ReplicaShape& shape, const StateCopies& copies = {});

// Adds the total demand on each pool of this rank, which itself needs `wanted` bytes of each. Collective.
void add_demands(World& world, std::int64_t wanted, std::vector<MemoryPool>& pools);

struct AvailableMemory {
  std::string host;
  MemoryPool of_host{};
  std::vector<MemoryPool> of_groups{};
  std::int64_t device_bytes = 0;  // that this rank needs on its GPU
  std::optional<std::int64_t> device_free{};
  std::string largest{};  // the largest layer, as the end of a message
};
Findings check_memory(const AvailableMemory& memory);

// For a GPU that has no room: what weights, activations and batches need.
std::string memory_text(const MemoryEstimate& estimate);

struct JobMemory {
  MemoryEstimate estimate;
  std::int64_t max_bytes = 0;  // that this rank may use
  Findings findings;
};
// Checks the demand of all ranks against the memory of their hosts and the limits of their processes and, if
// `device_free` is known, against the memory of the GPU. Collective.
JobMemory check_job_memory(World& world, const ReplicaShape& shape, const StateCopies& copies, const Machine& machine,
                           bool on_gpu, std::optional<std::int64_t> device_free = {});

}  // namespace tutti
