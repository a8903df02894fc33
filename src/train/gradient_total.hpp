#pragma once
// What the gradients of a rank's parts are added up in, one part after the other: a float block, or one of whole
// numbers (exact_sum.hpp).

#include "tutti/backend/backend.hpp"
#include "tutti/data/part_plan.hpp"

#include "elements.hpp"

#include <cstddef>

namespace tutti {

struct PartGradients {
  std::size_t number = 0;  // of the part among those with samples
  Tensor gradients;        // f32, the whole block
};

class GradientTotal {
 public:
  virtual ~GradientTotal() = default;
  // The block in which the first player's parts leave their gradients, and in the end the sum over all ranks is.
  virtual Tensor gradients() const = 0;
  // Whether part 0's gradients, left in gradients(), are the beginning of the total, and no other part's may be there.
  virtual bool starts_in_place() const = 0;
  // To be called before the parts of a step. Asynchronous, as all of these.
  virtual void begin(Stream& stream) = 0;
  // Elements of parts in ascending order; those of part 0 make what was there before forgotten.
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

}  // namespace tutti
