#include "gradient_accumulator.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace tutti {
namespace {

constexpr const char* kStateName = "exact/levels";
constexpr int kMantissaBits = 23;
// The levels in a checkpoint: the value for an unknown level, and the range of a float's exponents.
constexpr float kUnknownLevel = 1e9F;
constexpr int kMinLevel = -148;
constexpr int kMaxLevel = 128;

}  // namespace

bool GridLevel::accept(std::int32_t largest_bits, const SumBits& bits) {
  if (largest_bits == 0) return true;
  // Computed from the bits, since this thread may treat denormal numbers as 0.
  const int width = static_cast<int>(std::bit_width(static_cast<std::uint32_t>(largest_bits)));
  const int seen = width > kMantissaBits ? (largest_bits >> kMantissaBits) - 126 : width - 149;
  // The level is unknown until a first gradient has been seen. A run that starts without a checkpoint therefore
  // computes its first step twice: first to find the levels, then on the grids that follow from them.
  if (!level || seen > *level + bits.margin) {
    level = seen;
    return false;
  }
  level = std::max(seen, std::min(*level - 1, seen + bits.slack));
  return true;
}

std::int32_t GridLevel::exponent(int parts, const SumBits& bits) const {
  const int bits_of_parts = static_cast<int>(std::bit_width(static_cast<unsigned>(parts - 1)));
  return level ? bits.sum - bits_of_parts - bits.margin - *level : 0;
}

ExactAccumulator::ExactAccumulator(const RankContext& context, const ParameterLayout& layout, const Tensor& gradients,
                                   int parts, ElementType sums)
    : GradientAccumulator(context.backend, gradients),
      context_(context),
      slices_(layout.slices()),
      parts_(parts),
      bits_(sums == ElementType::i32 ? kShortSums : kLongSums),
      sums_(context.communicator, gradients.elements(), sums),
      rows_(context.communicator, context.communicator.size() * std::ssize(slices_), ElementType::i32),
      ends_(upload(backend_, layout.slice_ends())),
      exponents_(backend_, std::ssize(slices_), ElementType::i32),
      levels_(slices_.size()) {
  const auto stream = backend_.make_stream();
  set_exponents(*stream);
  stream->synchronize();
}

void ExactAccumulator::begin(Stream& stream) { backend_.fill_zero(stream, largest()); }

void ExactAccumulator::add(Stream& stream, const PartGradients& part, IndexRange elements) {
  backend_.to_fixed_point(stream, grid(),
                          {.values = elements_of(part.gradients, elements),
                           .sums = elements_of(sums_.values, elements),
                           .offset = elements.begin,
                           .first = part.index == 0,
                           .largest = largest()});
}

void ExactAccumulator::clear(Stream& stream) { backend_.fill_zero(stream, sums_.values); }

void ExactAccumulator::convert(Stream& stream, IndexRange elements) {
  backend_.from_fixed_point(stream, grid(),
                            {.sums = elements_of(sums_.values, elements),
                             .values = elements_of(gradients_, elements),
                             .offset = elements.begin});
}

void ExactAccumulator::add_digests(Stream& stream, IndexRange elements, const Tensor& digests) const {
  const auto at = [&](std::int64_t offset) {
    return std::ranges::lower_bound(slices_, offset, {}, &ParameterSlice::offset) - slices_.begin();
  };
  const IndexRange slices{at(elements.begin), at(elements.end)};
  std::vector<DigestedTensor> tensors;
  for (std::int64_t i = slices.begin; i < slices.end; ++i) {
    const ParameterSlice& slice = slices_[static_cast<std::size_t>(i)];
    tensors.push_back(
        {elements_of(sums_.values, {slice.offset, slice.offset + slice.elements()}), digest_start(slice.name)});
  }
  if (!tensors.empty()) backend_.add_digests(stream, tensors, elements_of(digests, slices));
}

void ExactAccumulator::after_parts(const PartsOfStep&) {
  all_gather_rows(context_.communicator, rows_.values, context_.stream);
}

StepOutcome ExactAccumulator::after_exchange(const PartsOfStep&, StepResult&) {
  std::vector<std::int32_t> of_ranks(static_cast<std::size_t>(rows_.values.elements()));
  backend_.copy(context_.stream, {of_ranks.data(), rows_.values.shape, ElementType::i32}, rows_.values);
  context_.stream.synchronize();
  std::vector<std::int32_t> largest(slices_.size());
  for (std::size_t i = 0; i < of_ranks.size(); ++i) {
    std::int32_t& of_slice = largest[i % largest.size()];
    of_slice = std::max(of_slice, of_ranks[i]);
  }
  // If the step is repeated, only the levels of slices that did not fit are raised. The repetition updates the others.
  std::vector<GridLevel> next = levels_;
  bool valid = true;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    if (next[i].accept(largest[i], bits_)) continue;
    levels_[i] = next[i];
    valid = false;
  }
  if (valid) levels_ = std::move(next);
  set_exponents(context_.stream);
  return valid ? StepOutcome::valid : StepOutcome::repeat;
}

void ExactAccumulator::set_exponents(Stream& stream) {
  std::vector<std::int32_t> wanted;
  for (const GridLevel& level : levels_) wanted.push_back(level.exponent(parts_, bits_));
  if (wanted == exponents_on_host_) return;
  exponents_on_host_ = std::move(wanted);
  backend_.copy(stream, exponents_.values, {exponents_on_host_.data(), exponents_.values.shape, ElementType::i32});
}

std::vector<NamedArray> ExactAccumulator::state() const {
  NamedArray levels{kStateName, Shape{static_cast<std::int64_t>(levels_.size())}, {}};
  for (const GridLevel& level : levels_) {
    levels.values.push_back(level.level ? static_cast<float>(*level.level) : kUnknownLevel);
  }
  return {std::move(levels)};
}

void ExactAccumulator::restore(const std::vector<NamedArray>& state) {
  levels_.assign(slices_.size(), {});
  const auto levels = std::ranges::find(state, kStateName, &NamedArray::name);
  if (levels == state.end()) return;
  if (levels->values.size() != levels_.size()) {
    throw Error(ErrorSource::checkpoint, fmt::format("{} has {} levels in the checkpoint, but the model has {} tensors",
                                                     kStateName, levels->values.size(), levels_.size()));
  }
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    const float level = levels->values[i];
    if (level == kUnknownLevel) continue;
    if (!(level >= kMinLevel && level <= kMaxLevel)) {
      throw Error(ErrorSource::checkpoint, fmt::format("{} is {} for {} in the checkpoint: must be {} to {}",
                                                       kStateName, level, slices_[i].name, kMinLevel, kMaxLevel));
    }
    levels_[i].level = static_cast<int>(level);
  }
  exponents_on_host_.clear();  // forces a new copy, since the device's may be corrupted
  set_exponents(context_.stream);
}

Tensor ExactAccumulator::largest() const {
  const auto count = std::ssize(slices_);
  return elements_of(rows_.values, {context_.communicator.rank() * count, (context_.communicator.rank() + 1) * count});
}

}  // namespace tutti
