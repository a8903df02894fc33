#include "memory.hpp"

#include "tutti/storage/checkpoint_store.hpp"

#include "../output.hpp"
#include "host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <sstream>
#include <string>

namespace tutti {
namespace {

constexpr std::int64_t kFloatBytes = sizeof(float);
// Estimates that exceed the available memory by a larger factor are errors, others are warnings.
constexpr double kErrorMargin = 1.25;

void check_amount(std::int64_t wanted, std::int64_t available, const std::string& text, Findings& findings) {
  if (wanted <= available) return;
  const bool is_error = static_cast<double>(wanted) > kErrorMargin * static_cast<double>(available);
  findings.add({is_error ? Severity::error : Severity::warning, ErrorSource::input, text});
}

// The layer with the most weights and output, as the end of a message:
// " (largest layer: dense1: 256x784 weights, 0.8 MiB; output 256 of 32 images, 0.0 MiB)".
std::string largest_layer(const Network& network, std::int64_t samples) {
  const auto mebi_of = [](std::int64_t elements) { return mebi(elements * kFloatBytes); };
  std::int64_t max = -1;
  std::string text;
  for (const NetworkLayer& layer : network.layers()) {
    std::int64_t weights = 0;
    std::string shape;
    for (const int slice : layer.parameters) {
      const ParameterSlice& parameter = network.layout().slice(slice);
      if (shape.empty()) shape = parameter.shape.text();
      weights += parameter.elements();
    }
    const std::int64_t output = samples * layer.output.elements();
    if (weights + output <= max) continue;
    max = weights + output;
    text = fmt::format(" (largest layer: {}: {}output {} of {} images, {:.1f} MiB)", layer.name,
                       weights == 0 ? "" : fmt::format("{} weights, {:.1f} MiB; ", shape, mebi_of(weights)),
                       layer.output.text(), samples, mebi_of(output));
  }
  return text;
}

}  // namespace

MemoryEstimate estimate_memory(const ReplicaShape& shape, const StateCopies& copies) {
  const ReplicaEstimate of_replica = estimate_replica(shape);
  const ParameterLayout& layout = shape.network.layout();
  const auto block = static_cast<std::int64_t>(layout.block_bytes());
  const std::int64_t blocks = shape.options.average.decay > 0 ? 2 : 1;  // of weights, in the checkpoint
  const auto slots = static_cast<std::int64_t>(optimizer_slots(shape.options.optimizer));
  MemoryEstimate estimate{.network = of_replica.memory, .activations = of_replica.activations};
  estimate.batches = of_replica.batches;
  estimate.checkpoint = estimate_checkpoint_bytes(blocks * block + slots * layout.trained_elements() * kFloatBytes,
                                                  static_cast<std::int64_t>(layout.slices().size()) * (blocks + slots));
  if (copies.shard) estimate.file = estimate.checkpoint / copies.shard->files;
  // The weights in the layers' format, the batches, the copy of the state, and the file made from it.
  estimate.copies = 2 * block + estimate.batches + 2 * estimate.file;
  if (copies.kept > 0) estimate.copies += (copies.kept + 2) * estimate.checkpoint;
  return estimate;
}

void add_demands(World& world, std::int64_t wanted, std::vector<MemoryPool>& pools) {
  std::string mine = fmt::format("{} {}", world.host(), wanted);
  for (const MemoryPool& pool : pools) mine += " " + pool.name;
  for (const std::string& theirs : all_gather_text(world, mine)) {
    std::istringstream words(theirs);
    std::string host;
    std::int64_t bytes = 0;
    words >> host >> bytes;
    if (host != world.host()) continue;
    const std::set<std::string> names{std::istream_iterator<std::string>(words), {}};
    for (MemoryPool& pool : pools) {
      if (!names.contains(pool.name)) continue;
      ++pool.ranks;
      pool.wanted += bytes;
    }
  }
}

std::string memory_text(const MemoryEstimate& estimate) {
  return fmt::format(
      "a rank of this run needs about {:.1f} MiB for weights, gradients and optimizer state, {:.1f} MiB for "
      "activations "
      "and {:.1f} MiB for batches, and scratch of its convolutions",
      mebi(estimate.network - estimate.activations), mebi(estimate.activations), mebi(estimate.batches));
}

JobMemory check_job_memory(World& world, const ReplicaShape& shape, const StateCopies& copies, const Machine& machine,
                           bool on_gpu, std::optional<std::int64_t> device_free) {
  JobMemory job;
  job.estimate = estimate_memory(shape, copies);
  const std::int64_t of_host = on_gpu ? job.estimate.copies : job.estimate.total();
  std::vector<MemoryPool> pools = machine.group_limits().memory;
  pools.push_back({"host", machine.memory_available().value_or(std::numeric_limits<std::int64_t>::max())});
  job.max_bytes = std::ranges::min(pools, {}, &MemoryPool::left).left;
  add_demands(world, of_host, pools);
  const AvailableMemory memory{.host = world.host(),
                               .of_host = pools.back(),
                               .of_groups = {pools.begin(), pools.end() - 1},
                               .device_bytes = job.estimate.network,
                               .device_free = device_free,
                               .largest = largest_layer(shape.network, shape.samples_per_part())};
  Findings mine = check_memory(memory);
  mine.add(check_limits(process_limits(), {.on_gpu = on_gpu,
                                           .has_fast_network = machine.has_fast_network(),
                                           .memory_bytes = of_host,
                                           .file_bytes = job.estimate.file,
                                           .largest = memory.largest}));
  job.findings = gather(world, mine);
  return job;
}

Findings check_memory(const AvailableMemory& memory) {
  Findings findings;
  const auto check_shared = [&](const MemoryPool& shared, const char* whose, const char* remedy) {
    check_amount(shared.wanted, shared.left,
                 fmt::format("{}: {} {} about {:.0f} MiB, and {} {:.0f} MiB: {}, or give a smaller --batch-size{}",
                             memory.host, plural(shared.ranks, "rank"), shared.ranks == 1 ? "needs" : "need",
                             mebi(shared.wanted), whose, mebi(shared.left), remedy, memory.largest),
                 findings);
  };
  check_shared(memory.of_host, "the host has", "start fewer ranks there");
  const auto to_spare = [](const MemoryPool& shared) { return shared.left - shared.wanted; };
  if (const auto tightest = std::ranges::min_element(memory.of_groups, {}, to_spare);
      tightest != memory.of_groups.end()) {
    check_shared(*tightest, "their control group leaves them", "ask for more (Slurm's --mem, docker --memory)");
  }
  if (memory.device_free) {
    check_amount(
        memory.device_bytes, *memory.device_free,
        fmt::format("about {:.0f} MiB are needed on the GPU, and {:.0f} MiB are free: give a smaller --batch-size or "
                    "--precision bf16, or end other processes there (nvidia-smi){}",
                    mebi(memory.device_bytes), mebi(*memory.device_free), memory.largest),
        findings);
  }
  return findings;
}

}  // namespace tutti
