#pragma once
// What the gradients of a rank's parts are added up in: a float block, or a block of integers whose sum is exact.

#include "tutti/checkpoint/train_state.hpp"
#include "tutti/nn/parameter_arena.hpp"

#include "rank_context.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tutti {

struct PartGradients {
  std::size_t number = 0;  // of the part among those with samples
  Tensor gradients;        // f32, the whole block
};

class GradientTotal {
 public:
  virtual ~GradientTotal() = default;
  // The block in which the first worker's parts leave their gradients, and in the end the sum over all ranks is.
  virtual Tensor gradients() const = 0;
  // Whether part 0's gradients, left in gradients(), are the beginning of the total, and no other part's may be there.
  virtual bool starts_in_place() const = 0;
  // To be called before the parts of a step. Asynchronous, as all of these.
  virtual void begin(Stream& stream) = 0;
  // Adds elements of parts in ascending order; those of part 0 replace what was there before.
  virtual void add(Stream& stream, const PartGradients& part, IndexRange elements) = 0;
  // The total of no part.
  virtual void clear(Stream& stream) = 0;
};

class FloatTotal final : public GradientTotal {
 public:
  // Borrowed.
  FloatTotal(Backend& backend, const Tensor& gradients) : backend_(backend), gradients_(gradients) {}

  Tensor gradients() const override { return gradients_; }
  bool starts_in_place() const override { return true; }
  void begin(Stream&) override {}
  void add(Stream& stream, const PartGradients& part, IndexRange elements) override {
    if (part.number == 0) return;
    backend_.add(stream, elements_of(gradients_, elements), elements_of(part.gradients, elements));
  }
  void clear(Stream& stream) override { backend_.fill_zero(stream, gradients_); }

 private:
  Backend& backend_;
  Tensor gradients_;
};

// The exponents of one slice's grid over the steps: pure arithmetic on the greatest |gradient| of any part.
class GridLevel {
 public:
  // A part may reach 2^kMargin times the greatest of the step before.
  static constexpr int kMargin = 10;
  // The level falls by one a step, and at once to what is at most 2^kLag times the greatest of the step before.
  static constexpr int kLag = 16;

  // f32 bits of the greatest finite |gradient|. False: the step is to be computed again, on the grid as it is now.
  bool accept(std::int32_t largest_bits);
  // The grid has steps of 2^-exponent: `parts` parts within the margin make a sum below 2^62 of them.
  std::int32_t exponent(int parts) const;

  // All gradients of the step before were below 2^level, or nothing is known.
  std::optional<int> level;
};

// The sum of gradients whose bits depend on the parts alone, not on the ranks that compute them: every part's gradients
// are rounded to a grid of whole multiples of a power of two, one per slice, and added as integers. The power follows
// the greatest gradient that any part has shown, with a margin; a step that goes beyond it is computed again on a
// coarser grid, alike at every number of ranks.
class ExactSum final : public GradientTotal {
 public:
  // The context is borrowed. `gradients` is the block, `parts` the number of parts of all ranks.
  ExactSum(const RankContext& rank, const ParameterLayout& layout, const Tensor& gradients, int parts);

  Tensor gradients() const override { return gradients_; }
  bool starts_in_place() const override { return false; }
  void begin(Stream& stream) override;
  void add(Stream& stream, const PartGradients& part, IndexRange elements) override;
  void clear(Stream& stream) override;

  // i64, by element of the block: what ranks are to add up.
  Tensor sums() const { return sums_.view(gradients_.shape, ElementType::i64); }
  // Their sum over all ranks becomes the gradients. From any one thread.
  void convert(Stream& stream, IndexRange elements);

  // After the parts of a step, before the exchange is finished: gathers what check() compares. Collective.
  // Asynchronous.
  void gather_largest();
  // After the exchange of gradients that are all finite: whether this step's sum stands, or the step is to be computed
  // again; alike on all ranks. Waits.
  bool check();
  // i32 [slices]: ToFixedPoint::largest of this rank's parts.
  Tensor largest() const;
  // How often a step was computed again so far.
  std::int64_t redone_steps() const noexcept { return redone_steps_; }

  // i32 [slices], of the grid: equal on all ranks.
  Tensor exponents() const { return grid().exponents; }

  std::vector<NamedArray> state() const;
  // An empty state knows nothing, as at the start.
  void restore(const std::vector<NamedArray>& state);
  std::size_t bytes() const { return sums_.bytes() + rows_.bytes() + ends_.bytes() + exponents_.bytes(); }

 private:
  Tensor rows() const;                         // i32 [ranks * slices]: by rank, the greatest |gradient| of each slice
  std::vector<std::int32_t> largest_of_all();  // by slice
  // To be called while no copy of them is under way. Asynchronous.
  void set_exponents(Stream& stream);
  FixedPointGrid grid() const;

  const RankContext& rank_;
  Backend& backend_;
  std::vector<ParameterSlice> slices_;
  Tensor gradients_;
  int parts_;
  Buffer sums_;
  Buffer rows_;
  Buffer ends_;
  Buffer exponents_;
  std::vector<GridLevel> levels_;
  std::vector<std::int32_t> exponents_on_host_;  // unchanged until the stream has been waited for
  std::int64_t redone_steps_ = 0;
};

}  // namespace tutti
