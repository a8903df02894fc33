#include "gradient_total.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace tutti {
namespace {

constexpr const char* kStateName = "exact/levels";
constexpr int kMantissaBits = 23;
constexpr int kSumBits = 62;
// The levels in a checkpoint: what stands for none, and the range that a float can have.
constexpr float kUnknown = 1e9F;
constexpr int kLeast = -148;
constexpr int kMost = 128;

Tensor on_host(std::vector<std::int32_t>& values) {
  return {values.data(), Shape{static_cast<std::int64_t>(values.size())}, ElementType::i32, MemorySpace::host};
}

}  // namespace

bool GridLevel::accept(std::int32_t largest_bits) {
  if (largest_bits == 0) return true;
  // By the bits: denormal numbers may be 0 to this thread.
  const int width = static_cast<int>(std::bit_width(static_cast<std::uint32_t>(largest_bits)));
  const int seen = width > kMantissaBits ? (largest_bits >> kMantissaBits) - 126 : width - 149;
  if (!level || seen > *level + kMargin) {
    level = seen;
    return false;
  }
  level = std::max(seen, std::min(*level - 1, seen + kSlack));
  return true;
}

std::int32_t GridLevel::exponent(int parts) const {
  const int bits_of_parts = static_cast<int>(std::bit_width(static_cast<unsigned>(parts - 1)));
  return level ? kSumBits - bits_of_parts - kMargin - *level : 0;
}

ExactSum::ExactSum(const RankContext& rank, const ParameterLayout& layout, const Tensor& gradients, int parts)
    : rank_(rank),
      backend_(rank.backend),
      slices_(layout.slices()),
      gradients_(gradients),
      parts_(parts),
      sums_(rank.communicator.allocate(static_cast<std::size_t>(gradients.elements()) * sizeof(std::int64_t))),
      rows_(rank.communicator.allocate(static_cast<std::size_t>(rank.communicator.size()) * slices_.size() *
                                       sizeof(std::int32_t))),
      ends_(upload(backend_, layout.slice_ends())),
      exponents_(backend_.allocate(slices_.size() * sizeof(std::int32_t))),
      levels_(slices_.size()) {
  const auto stream = backend_.make_stream();
  set_exponents(*stream);
  stream->synchronize();
}

void ExactSum::begin(Stream& stream) { backend_.fill_zero(stream, largest()); }

void ExactSum::add(Stream& stream, const PartGradients& part, IndexRange elements) {
  backend_.to_fixed_point(stream, grid(),
                          {.values = elements_of(part.gradients, elements),
                           .sums = elements_of(sums(), elements),
                           .place = elements.begin,
                           .first = part.number == 0,
                           .largest = largest()});
}

void ExactSum::clear(Stream& stream) { backend_.fill_zero(stream, sums()); }

void ExactSum::convert(Stream& stream, IndexRange elements) {
  backend_.from_fixed_point(
      stream, grid(),
      {.sums = elements_of(sums(), elements), .values = elements_of(gradients_, elements), .place = elements.begin});
}

void ExactSum::gather_largest() { all_gather_rows(rank_.communicator, rows(), rank_.stream); }

bool ExactSum::check() {
  const std::vector<std::int32_t> largest = largest_of_all();
  // Of a step that is computed again, the slices that fit do not count: they will be seen once more.
  std::vector<GridLevel> next = levels_;
  bool valid = true;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    if (next[i].accept(largest[i])) continue;
    levels_[i] = next[i];
    valid = false;
  }
  if (valid) {
    levels_ = std::move(next);
  } else {
    ++redone_steps_;
  }
  set_exponents(rank_.stream);
  return valid;
}

std::vector<std::int32_t> ExactSum::largest_of_all() {
  std::vector<std::int32_t> all(static_cast<std::size_t>(rows().elements()));
  backend_.copy(rank_.stream, on_host(all), rows());
  rank_.stream.synchronize();
  std::vector<std::int32_t> largest(slices_.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::int32_t& of_slice = largest[i % largest.size()];
    of_slice = std::max(of_slice, all[i]);
  }
  return largest;
}

void ExactSum::set_exponents(Stream& stream) {
  std::vector<std::int32_t> wanted;
  for (const GridLevel& level : levels_) wanted.push_back(level.exponent(parts_));
  if (wanted == exponents_on_host_) return;
  exponents_on_host_ = std::move(wanted);
  backend_.copy(stream, grid().exponents, on_host(exponents_on_host_));
}

std::vector<NamedArray> ExactSum::state() const {
  NamedArray levels{kStateName, Shape{static_cast<std::int64_t>(levels_.size())}, {}};
  for (const GridLevel& level : levels_) {
    levels.values.push_back(level.level ? static_cast<float>(*level.level) : kUnknown);
  }
  return {std::move(levels)};
}

void ExactSum::restore(const std::vector<NamedArray>& state) {
  levels_.assign(slices_.size(), {});
  const auto levels = std::ranges::find(state, kStateName, &NamedArray::name);
  if (levels == state.end()) return;
  if (levels->values.size() != levels_.size()) {
    throw Error(ErrorSource::checkpoint,
                fmt::format("{} is of {} tensors in the checkpoint, but there are {} in this model", kStateName,
                            levels->values.size(), levels_.size()));
  }
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    const float level = levels->values[i];
    if (level == kUnknown) continue;
    if (!(level >= kLeast && level <= kMost)) {
      throw Error(ErrorSource::checkpoint, fmt::format("{} is {} for {} in the checkpoint: must be {} to {}",
                                                       kStateName, level, slices_[i].name, kLeast, kMost));
    }
    levels_[i].level = static_cast<int>(level);
  }
  exponents_on_host_.clear();  // those in the processor's memory may have come to harm
  set_exponents(rank_.stream);
}

Tensor ExactSum::rows() const {
  const auto count = static_cast<std::int64_t>(slices_.size());
  return rows_.view(Shape{rank_.communicator.size() * count}, ElementType::i32);
}

Tensor ExactSum::largest() const {
  const auto count = static_cast<std::int64_t>(slices_.size());
  return elements_of(rows(), {rank_.communicator.rank() * count, (rank_.communicator.rank() + 1) * count});
}

FixedPointGrid ExactSum::grid() const {
  const Shape slices{static_cast<std::int64_t>(slices_.size())};
  return {.ends = ends_.view(slices, ElementType::i64), .exponents = exponents_.view(slices, ElementType::i32)};
}

}  // namespace tutti
