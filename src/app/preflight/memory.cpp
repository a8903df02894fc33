#include "memory.hpp"

#include "tutti/data/part_map.hpp"
#include "tutti/nn/network_instance.hpp"

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
constexpr std::int64_t kEvaluationChunk = 256;
// Bytes of a checkpoint for options, versions and padding to whole pages, and for the metadata of a tensor in the file
// and the manifest.
constexpr std::int64_t kTextBytes = 32 << 10;
constexpr std::int64_t kMetadataBytesPerTensor = 1280;
// Estimates that exceed the available memory by a larger factor are errors, others are warnings.
constexpr double kErrorMargin = 1.25;

int optimizer_slots(const OptimizerOptions& optimizer) {
  if (optimizer.kind == OptimizerKind::adamw) return 2;
  return optimizer.kind == OptimizerKind::lars || optimizer.momentum != 0 ? 1 : 0;
}

// The optimizer state of this rank.
std::int64_t state_bytes(const EstimateRequest& request, std::int64_t all) {
  switch (request.options.exchange.owners()) {
    case Owners::all:
      return all;
    case Owners::sharded:
      return all / request.ranks;
    case Owners::root:
      return request.rank == 0 ? all : 0;
  }
  return all;
}

void check_amount(std::int64_t wanted, std::int64_t available, const std::string& text, Findings& findings) {
  if (wanted <= available) return;
  const bool is_error = static_cast<double>(wanted) > kErrorMargin * static_cast<double>(available);
  findings.add({is_error ? Severity::error : Severity::warning, ErrorSource::input, text});
}

std::int64_t samples_per_part(const TrainerOptions& options) {
  return (options.batch_size + options.num_parts - 1) / options.num_parts;
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

MemoryEstimate estimate_memory(const EstimateRequest& request) {
  const TrainerOptions& options = request.options;
  const ParameterLayout& layout = request.network.layout();
  const auto block = static_cast<std::int64_t>(layout.block_bytes());
  const std::int64_t max_parts =
      max_parts_by_rank(options.part_map, options.num_parts, request.ranks).at(static_cast<std::size_t>(request.rank));
  const std::int64_t workers = options.workers(static_cast<int>(max_parts));
  const std::int64_t testing = std::min<std::int64_t>(workers, std::max(1, options.max_workers));
  const bool exact = options.exchange.kind == Exchange::exact;
  const bool rounds = options.exchange.rounds() && request.ranks > 1;

  const std::int64_t samples = samples_per_part(options);
  const std::int64_t tested = std::min(kEvaluationChunk, request.test_samples);
  const std::size_t value = request.precision == Precision::bf16 ? 2 : sizeof(float);
  const auto of_training =
      static_cast<std::int64_t>(estimate_activations(request.network, {samples, LayerMode::training, value}));
  const auto of_test =
      static_cast<std::int64_t>(estimate_activations(request.network, {tested, LayerMode::evaluation, value}));
  // Every worker but the first has its own gradients; the first one too if parts are added up in floats.
  const std::int64_t part_gradients = workers - (exact || max_parts <= workers ? 1 : 0);

  const std::int64_t all_state = optimizer_slots(options.optimizer) * layout.trained_elements() * kFloatBytes;
  const std::int64_t state = state_bytes(request, all_state);
  const bool audits = options.safeguards.audit_every_steps > 0;
  MemoryEstimate estimate;
  estimate.activations = workers * of_training + testing * std::max<std::int64_t>(0, of_test - of_training);
  estimate.network = block * (exact ? 4 : 2) + state + estimate.activations + part_gradients * block +
                     (options.average.decay > 0 ? 2 * block : 0) +
                     (audits && options.batch_norm == BatchNorm::global ? 2 * block : 0) +
                     (rounds ? layout.trained_elements() * kFloatBytes / 2 : 0);
  const std::int64_t blocks = options.average.decay > 0 ? 2 : 1;  // of weights, in the checkpoint
  const auto tensors =
      static_cast<std::int64_t>(layout.slices().size()) * (blocks + optimizer_slots(options.optimizer));
  estimate.checkpoint = blocks * block + all_state + kTextBytes + tensors * kMetadataBytesPerTensor;
  // Balancing moves batches between ranks: all ranks together need as many as at first.
  const std::int64_t parts =
      PartMap::chosen(options.part_map.parts_by_rank, options.num_parts, request.ranks).parts_of(request.rank).size();
  const std::int64_t batch = samples * parts * request.network.sample().elements() * kFloatBytes;
  estimate.batches = (options.steps_ahead + 1) * batch;
  if (audits) estimate.batches += batch / parts;
  estimate.copies = 2 * block + estimate.batches;
  if (request.shard) estimate.file = estimate.checkpoint / request.shard->files;
  estimate.copies += 2 * estimate.file;  // the copy of the state, and the file made from it
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

JobMemory check_job_memory(World& world, const EstimateRequest& request, const Machine& machine, bool on_gpu,
                           std::optional<std::int64_t> device_free) {
  JobMemory job;
  job.estimate = estimate_memory(request);
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
                               .largest = largest_layer(request.network, samples_per_part(request.options))};
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
