// The tensors of a replica: their digests, those that are equal on all ranks, and bits of them that are flipped.

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/train/replica.hpp"
#include "tutti/watch/rehearsal.hpp"

#include "exchange.hpp"
#include "gradient_accumulator.hpp"
#include "rank_context.hpp"
#include "replica_verifier.hpp"
#include "weight_average.hpp"

#include <fmt/format.h>

namespace tutti {

struct Replica::LocalTensor {
  FlipTarget target;
  std::string array;  // its name in checkpoints, with its group; empty: they do not contain it
  Tensor values;
};

std::uint64_t Replica::weights_digest() {
  return digest_of(backend_, *stream_, arena_.weights(), arena_.layout().trained());
}

std::optional<std::uint64_t> Replica::statistics_digest() {
  const auto statistics = arena_.layout().statistics();
  if (statistics.empty()) return std::nullopt;
  return digest_of(backend_, *stream_, arena_.weights(), statistics);
}

std::optional<std::uint64_t> Replica::averages_digest() {
  if (!average_) return std::nullopt;
  return digest_of(backend_, *stream_, average_->values(), arena_.layout().slices());
}

std::uint64_t Replica::gradients_digest() { return owned_digest({{"", arena_.gradients()}}, &OwnedPiece::elements); }

std::uint64_t Replica::optimizer_digest() { return owned_digest(optimizer_->slots(), &OwnedPiece::packed); }

std::uint64_t Replica::owned_digest(const std::vector<OptimizerSlot>& blocks, IndexRange OwnedPiece::*where) {
  const auto slices = arena_.layout().trained();
  std::vector<DigestedTensor> pieces;
  for (const auto& [name, block] : blocks) {
    const std::string prefix = name.empty() ? "" : name + "/";
    for (const OwnedPiece& piece : ownership_->pieces_of(ranges_of(slices))) {
      const ParameterSlice& slice = slices[piece.range];
      const auto first = static_cast<std::uint64_t>(piece.elements.begin - slice.offset);
      pieces.push_back({elements_of(block, piece.*where), digest_start(prefix + slice.name, first)});
    }
  }
  const std::uint64_t sum = digest_of(backend_, *stream_, pieces);
  return gathers_weights() ? context_->all_reduce(sum) : sum;
}

std::vector<Replica::LocalTensor> Replica::whole_tensors() const {
  const ParameterLayout& layout = arena_.layout();
  std::vector<LocalTensor> tensors;
  const auto add = [&](const OptimizerSlot& of, const std::string& group, std::span<const ParameterSlice> slices) {
    for (const ParameterSlice& slice : slices) {
      tensors.push_back({.target = {of.name, slice.name, slice.elements()},
                         .array = group.empty() ? "" : group + slice.name,
                         .values = slice_of(of.block, slice)});
    }
  };
  add({"weights", arena_.weights()}, "parameters/", layout.trained());
  add({"statistics", arena_.weights()}, "statistics/", layout.statistics());
  if (average_) add({"averages", average_->values()}, "averages/", layout.slices());
  if (gathers_weights()) return tensors;
  add({"gradients", arena_.gradients()}, "", layout.slices());
  for (const OptimizerSlot& slot : optimizer_->slots()) add(slot, "optimizer/" + slot.name + "/", layout.trained());
  return tensors;
}

std::vector<ReplicatedTensor> Replica::replicated() const {
  std::vector<ReplicatedTensor> tensors;
  for (const LocalTensor& local : whole_tensors()) {
    if (!local.array.empty()) tensors.push_back({local.array, local.values});
  }
  if (exact_) tensors.push_back({"exchange/exact/exponents", exact_->exponents()});
  return tensors;
}

std::vector<FlipTarget> Replica::local_tensors() const {
  std::vector<FlipTarget> targets;
  for (const LocalTensor& local : whole_tensors()) targets.push_back(local.target);
  return targets;
}

void Replica::flip(const BitFlip& flip) {
  for (const auto& [target, array, values] : whole_tensors()) {
    if (target.block != flip.block || target.name != flip.tensor || flip.element >= target.elements) continue;
    const Tensor element = elements_of(values, {flip.element, flip.element + 1});
    std::uint32_t bits = 0;
    const Tensor on_host{&bits, Shape{1}, ElementType::f32, MemorySpace::host};
    backend_.copy(*stream_, on_host, element);
    stream_->synchronize();
    bits ^= std::uint32_t{1} << flip.bit;
    backend_.copy(*stream_, element, on_host);
    stream_->synchronize();
    return weights_.refresh(*stream_);
  }
  throw Error(ErrorSource::internal, fmt::format("no element {} of {} {}", flip.element, flip.block, flip.tensor));
}

}  // namespace tutti
