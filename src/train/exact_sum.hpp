#pragma once
// The sum of gradients whose bits depend on the parts alone, not on the ranks that play them: every part's gradients
// are rounded to a grid of whole multiples of a power of two, one per slice, and added as integers. The power follows
// the greatest gradient that any part has shown, with a margin; a step that goes beyond it is played again on a wider
// grid, at every number of ranks alike.

#include "tutti/checkpoint/train_state.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/nn/parameter_arena.hpp"

#include "gradient_total.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace tutti {

// The exponents of one slice's grid over the steps: pure arithmetic on the greatest |gradient| of any part.
class GridLevel {
 public:
  // A part may reach 2^kMargin times the greatest of the step before.
  static constexpr int kMargin = 10;
  // The level falls by one a step, and at once to what is at most 2^kLag times the greatest of the step before.
  static constexpr int kLag = 16;

  // f32 bits of the greatest finite |gradient|. False: the step is to be played again, on the grid as it is now.
  bool accept(std::int32_t largest_bits);
  // Steps of 2^-exponent: so many parts within the margin make a sum below 2^62 of them.
  std::int32_t exponent(int parts) const;

  // All gradients of the step before were below 2^level, or nothing is known.
  std::optional<int> level;
};

class ExactSum final : public GradientTotal {
 public:
  // Borrowed. `gradients` is the block, `parts` those of all ranks.
  ExactSum(Backend& backend, Communicator& communicator, const ParameterLayout& layout, const Tensor& gradients,
           int parts);

  Tensor gradients() const override { return gradients_; }
  bool starts_in_place() const override { return false; }
  void begin(Stream& stream) override;
  void add(Stream& stream, const PartGradients& part, IndexRange elements) override;
  void clear(Stream& stream) override;

  // i64, by element of the block: what ranks are to add up.
  Tensor sums() const { return sums_.view(gradients_.shape, ElementType::i64); }
  // Their sum over all ranks becomes the gradients. From any one thread.
  void convert(Stream& stream, IndexRange elements);

  // After the parts of a step, before the exchange is finished: what judge() goes by. Collective. Asynchronous.
  void pass_on_largest(Stream& stream);
  // After the exchange of gradients that are all finite: whether this step's sum stands, or the step is to be played
  // again; alike on all ranks. Waits.
  bool judge(Stream& stream);
  // i32 [slices]: ToFixedPoint::largest of this rank's parts.
  Tensor largest() const;
  // Of the steps so far.
  std::int64_t replayed_steps() const noexcept { return replayed_steps_; }

  // i32 [slices], of the grid: equal on all ranks.
  Tensor exponents() const { return grid().exponents; }

  std::vector<NamedArray> state() const;
  // Without any, nothing is known, as at the start.
  void restore(Stream& stream, const std::vector<NamedArray>& state);
  std::size_t bytes() const { return sums_.bytes() + rows_.bytes() + ends_.bytes() + exponents_.bytes(); }

 private:
  Tensor rows() const;  // i32 [ranks * slices]: by rank, the greatest |gradient| of each slice
  std::vector<std::int32_t> largest_of_all(Stream& stream);  // by slice
  // Nothing of the kind is under way. Asynchronous.
  void set_exponents(Stream& stream);
  FixedPointGrid grid() const;

  Backend& backend_;
  Communicator& communicator_;
  std::vector<ParameterSlice> slices_;
  Tensor gradients_;
  int parts_;
  Buffer sums_;
  Buffer rows_;
  Buffer ends_;
  Buffer exponents_;
  std::vector<GridLevel> levels_;
  std::vector<std::int32_t> exponents_on_host_;  // unchanged until the stream has been waited for
  std::int64_t replayed_steps_ = 0;
};

}  // namespace tutti
