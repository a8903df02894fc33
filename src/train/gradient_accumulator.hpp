#pragma once
// The sum of the gradients of a rank's parts: in an f32 block, or in a block of integers whose sum is exact.

#include "tutti/nn/parameter_arena.hpp"
#include "tutti/storage/train_state.hpp"

#include "rank_context.hpp"
#include "step_check.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tutti {

struct PartGradients {
  std::size_t index = 0;  // among this rank's parts with samples
  Tensor gradients;       // f32, the whole block
};

// The sum in f32, and the interface of the exact sum.
class GradientAccumulator {
 public:
  // Borrowed.
  GradientAccumulator(Backend& backend, const Tensor& gradients) : backend_(backend), gradients_(gradients) {}
  virtual ~GradientAccumulator() = default;

  // The block that finally holds the sum over all ranks. Before, part 0 writes its gradients there.
  const Tensor& gradients() const { return gradients_; }
  // Whether the sum over the parts is made in gradients(): it begins with part 0, and no other part may write there.
  // Otherwise any part may, as the sum is made elsewhere.
  virtual bool sums_in_place() const { return true; }
  // Call it before the parts of a step. This and the following functions are asynchronous.
  virtual void begin(Stream&) {}
  // Adds elements of a part. Parts come in ascending order; part 0 replaces the previous values.
  virtual void add(Stream& stream, const PartGradients& part, IndexRange elements) {
    if (part.index == 0) return;
    backend_.add(stream, elements_of(gradients_, elements), elements_of(part.gradients, elements));
  }
  // Sets the sum to zero.
  virtual void clear(Stream& stream) { backend_.fill_zero(stream, gradients_); }

 protected:
  Backend& backend_;
  Tensor gradients_;
};

// How the bits of integer sums are used.
struct SumBits {
  int sum = 0;
  // A gradient may reach 2^margin times the largest of the previous step.
  int margin = 0;
  // The level falls by one per step, or to 2^slack times the largest of the previous step if that is lower.
  int slack = 0;
};
inline constexpr SumBits kLongSums{.sum = 62, .margin = 10, .slack = 16};
inline constexpr SumBits kShortSums{.sum = 30, .margin = 3, .slack = 2};

// The exponent of one slice's grid from step to step: pure arithmetic on the largest |gradient| of any part.
class GridLevel {
 public:
  // Updates the level from the f32 bits of the largest finite |gradient|. False: the step must be repeated on the new
  // grid.
  bool accept(std::int32_t largest_bits, const SumBits& bits);
  // The grid has steps of 2^-exponent, so that the sum of `parts` parts within the margin stays below 2^sum of them.
  std::int32_t exponent(int parts, const SumBits& bits) const;

  // All gradients of the previous step were below 2^level. Those of the next may exceed that by the margin. Empty:
  // unknown.
  std::optional<int> level;
};

// A sum of gradients whose bits depend on the parts, not on the ranks that compute them. Each part's gradients are
// rounded to multiples of a power of two, one per slice, and added as integers. The power follows the largest gradient
// of any part, with a margin. A step that exceeds the margin is repeated on a coarser grid, at any number of ranks. As
// a check it comes after that for finite gradients.
class ExactAccumulator final : public GradientAccumulator, public StepCheck {
 public:
  // The context is borrowed. `gradients` is the block, `parts` the number of parts over all ranks, `sums` i64 or i32.
  ExactAccumulator(const RankContext& context, const ParameterLayout& layout, const Tensor& gradients, int parts,
                   ElementType sums);

  bool sums_in_place() const override { return false; }
  void begin(Stream& stream) override;
  void add(Stream& stream, const PartGradients& part, IndexRange elements) override;
  void clear(Stream& stream) override;

  // i64 or i32, one per element of the block: the ranks' summands.
  Tensor sums() const { return sums_.values; }
  // Converts their sums over all ranks into the gradients. Called in one thread at a time.
  void convert(Stream& stream, IndexRange elements);

  // All-gathers what after_exchange() needs.
  void after_parts(const PartsOfStep&) override;
  // Waits.
  StepOutcome after_exchange(const PartsOfStep&, StepResult&) override;
  // i32 [slices]: ToFixedPoint::largest of this rank's parts.
  Tensor largest() const;
  // Adds the digests of the sums of these whole slices, under their names, to `digests`, i64 [slices]. Asynchronous.
  void add_digests(Stream& stream, IndexRange elements, const Tensor& digests) const;
  // i32 [slices]: the grid, equal on all ranks.
  Tensor exponents() const { return exponents_.values; }

  std::vector<NamedArray> state() const;
  // An empty state restores the initial state.
  void restore(const std::vector<NamedArray>& state);
  std::size_t bytes() const {
    return sums_.memory.bytes() + rows_.memory.bytes() + ends_.memory.bytes() + exponents_.memory.bytes();
  }

 private:
  // Call it only while no copy of them is pending. Asynchronous.
  void set_exponents(Stream& stream);
  FixedPointGrid grid() const { return {.ends = ends_.values, .exponents = exponents_.values}; }

  const RankContext& context_;
  std::vector<ParameterSlice> slices_;
  int parts_;
  SumBits bits_;
  OwnedTensor sums_;
  OwnedTensor rows_;  // i32 [ranks * slices]: by rank, the largest |gradient| of each slice
  OwnedTensor ends_;
  OwnedTensor exponents_;
  std::vector<GridLevel> levels_;
  std::vector<std::int32_t> exponents_on_host_;  // not to be changed while a copy is pending
};

}  // namespace tutti
