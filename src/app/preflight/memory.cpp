#include "memory.hpp"

#include "tutti/data/part_plan.hpp"
#include "tutti/nn/activation_estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace tutti {
namespace {

constexpr double kMebi = 0x1p20;
constexpr std::int64_t kFloatBytes = sizeof(float);
constexpr std::int64_t kEvaluationChunk = 256;
// An estimate above what is there by more than it may be wrong.
constexpr double kSurely = 1.25;

int optimizer_slots(const OptimizerOptions& optimizer) {
  if (optimizer.kind == "adamw") return 2;
  return optimizer.kind == "lars" || optimizer.momentum != 0 ? 1 : 0;
}

// Of this rank.
std::int64_t state_bytes(const EstimateRequest& request, std::int64_t all) {
  switch (request.options.exchange.owners()) {
    case Owners::everyone:
      return all;
    case Owners::shares:
      return all / request.ranks;
    case Owners::first:
      return request.rank == 0 ? all : 0;
  }
  return all;
}

void judge(std::int64_t wanted, std::int64_t there, const std::string& text, Findings& findings) {
  if (wanted <= there) return;
  if (static_cast<double>(wanted) > kSurely * static_cast<double>(there)) {
    findings.doom(ErrorSource::usage, text);
  } else {
    findings.warn(text);
  }
}

}  // namespace

MemoryEstimate estimate_memory(const EstimateRequest& request) {
  const TrainerOptions& options = request.options;
  const ParameterLayout& layout = request.network.layout();
  const auto block = static_cast<std::int64_t>(layout.block_bytes());
  const std::int64_t parts = PartPlan::chosen(options.part_map.parts_by_rank, options.num_parts, request.ranks)
                                 .parts_by_rank()
                                 .at(static_cast<std::size_t>(request.rank));
  const std::int64_t players = std::clamp<std::int64_t>(options.side_by_side, 1, parts);
  const bool exact = options.exchange.kind == Exchange::exact;

  const std::int64_t samples = (options.batch_size + options.num_parts - 1) / options.num_parts;
  const std::int64_t tested = std::min(kEvaluationChunk, request.test_samples);
  const std::size_t value = request.config.precision == "bf16" ? 2 : sizeof(float);
  const auto activations = static_cast<std::int64_t>(
      std::max(estimate_activations(request.network, {samples, LayerMode::training, value}),
               estimate_activations(request.network, {tested, LayerMode::evaluation, value})));
  // Every player but the first has gradients of its own; that one too, for parts that are added to others in floats.
  const std::int64_t part_gradients = players - (exact || parts <= players ? 1 : 0);

  const std::int64_t all_state = optimizer_slots(options.optimizer) * layout.trained_elements() * kFloatBytes;
  const std::int64_t state = state_bytes(request, all_state);
  MemoryEstimate estimate;
  estimate.network = block * (exact ? 4 : 2) + state + players * activations + part_gradients * block;
  estimate.checkpoint = block + all_state;
  const std::int64_t batch = samples * parts * request.network.sample().elements() * kFloatBytes;
  estimate.copies = 2 * block + (options.steps_ahead + 1) * batch;
  const bool heals = options.safeguards.on_divergence == OnDivergence::heal && request.ranks > 1;
  if (options.safeguards.verify_every_steps > 0 && heals) estimate.network += block + state;
  // The state beside training, and the file made of it.
  if (!request.config.out.empty() && request.rank == 0) estimate.copies += 2 * estimate.checkpoint;
  return estimate;
}

Findings judge_memory(const MemoryAtHand& memory) {
  Findings findings;
  const auto told = [&](const char* whose) {
    return fmt::format("{}: {} rank{} need{} about {:.0f} MiB", memory.host, memory.local_ranks,
                       memory.local_ranks == 1 ? "" : "s", memory.local_ranks == 1 ? "s" : "",
                       static_cast<double>(memory.host_bytes) / kMebi) +
           whose;
  };
  if (memory.available) {
    judge(memory.host_bytes, *memory.available,
          fmt::format("{}{:.0f} MiB: start fewer ranks there, or give a smaller --batch-size",
                      told(", and the host has "), static_cast<double>(*memory.available) / kMebi),
          findings);
  }
  if (memory.group_left) {
    judge(memory.host_bytes, *memory.group_left,
          fmt::format("{}{:.0f} MiB: ask for more (Slurm's --mem, docker --memory), or give a smaller --batch-size",
                      told(", and their control group leaves them "), static_cast<double>(*memory.group_left) / kMebi),
          findings);
  }
  if (memory.device_free) {
    judge(
        memory.device_bytes, *memory.device_free,
        fmt::format("about {:.0f} MiB are needed on the GPU, and {:.0f} are free: give a smaller --batch-size or "
                    "--precision bf16, or end what else runs there (nvidia-smi)",
                    static_cast<double>(memory.device_bytes) / kMebi, static_cast<double>(*memory.device_free) / kMebi),
        findings);
  }
  return findings;
}

std::int64_t sum_over_host(World& world, const Hosts& hosts, std::int64_t mine) {
  const auto all = all_gather_figures(world, {static_cast<double>(mine)});
  double sum = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (hosts[rank] == world.host()) sum += all[rank][0];
  }
  return static_cast<std::int64_t>(sum);
}

}  // namespace tutti
