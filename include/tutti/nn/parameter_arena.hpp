#pragma once
// All parameters of a network in one flat block, their gradients in another of the same layout. Slices lie in
// backward order (the last layer first), so that gradients become final from the front and buckets need no copy.
// Running statistics are the tail of both: in the block of gradients, each step's own statistics.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/layer_spec.hpp"
#include "tutti/backend/tensor.hpp"

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

struct ParameterSlice {
  std::string name;  // "conv1/weight"
  ParameterKind kind = ParameterKind::weight;
  Shape shape;
  std::int64_t offset = 0;   // elements from the start of the block, a multiple of 16
  bool frozen = false;       // never updated, whatever its gradient
  double momentum = 0;       // of a statistic; 0 if it is frozen
  bool has_gradient = true;  // false: the gradient is 0 in every step, since the layer has no backward pass

  std::int64_t elements() const { return shape.elements(); }
};

// Where each parameter lies in a block of f32 elements; slices are padded to 64 bytes.
class ParameterLayout {
 public:
  // Appends a slice and returns its number. All statistics come after all else. Throws an input error when there are
  // too many elements to count.
  int add(std::string name, ParameterKind kind, const Shape& shape) { return add({std::move(name), kind, shape}); }
  int add(ParameterSlice slice);  // its offset is set here
  void remove_gradient(int number) { slices_.at(static_cast<std::size_t>(number)).has_gradient = false; }

  const std::vector<ParameterSlice>& slices() const noexcept { return slices_; }
  // The slices that the optimizer works on, and those of the tail.
  std::span<const ParameterSlice> trained() const noexcept { return std::span(slices_).first(trained_slices_); }
  std::span<const ParameterSlice> statistics() const noexcept { return std::span(slices_).subspan(trained_slices_); }
  const ParameterSlice& slice(int number) const { return slices_.at(static_cast<std::size_t>(number)); }
  // The length of a block, with padding.
  std::int64_t block_elements() const noexcept { return block_elements_; }
  // The length without the statistics, which begin there.
  std::int64_t trained_elements() const noexcept { return trained_elements_; }
  // The number of parameters, without padding and statistics.
  std::int64_t parameters() const noexcept { return parameters_; }
  // Where each slice ends in a block, with its padding.
  std::vector<std::int64_t> slice_ends() const;
  std::size_t block_bytes() const noexcept { return static_cast<std::size_t>(block_elements_) * sizeof(float); }

 private:
  std::vector<ParameterSlice> slices_;
  std::size_t trained_slices_ = 0;
  std::int64_t trained_elements_ = 0;
  std::int64_t block_elements_ = 0;
  std::int64_t parameters_ = 0;
};

// Whether a pattern with the wildcards of the shell matches the name of the slice ("conv1/weight") or of its layer.
bool matches(const std::string& pattern, const ParameterSlice& slice);
// One slice of a block, in its own shape.
Tensor slice_of(const Tensor& block, const ParameterSlice& slice);
// The values of some slices of a block in host memory. Waits for the stream.
std::vector<std::vector<float>> read_slices(Backend& backend, Stream& stream, const Tensor& block,
                                            std::span<const ParameterSlice> slices);
// The sum of the digests of these tensors. Waits for the stream.
std::uint64_t digest_of(Backend& backend, Stream& stream, std::span<const DigestedTensor> tensors);
// The same of these slices under their names; padding does not count.
std::uint64_t digest_of(Backend& backend, Stream& stream, const Tensor& block, std::span<const ParameterSlice> slices);

// Running statistics, and those of a step, both at the end of a block.
struct StatisticsUpdate {
  Tensor running;
  Tensor of_step;
  std::int64_t begin = 0;  // of the elements that are updated
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
};
// Blends the statistics of a step into the running ones, each with its layer's momentum. Asynchronous.
void update_statistics(Backend& backend, Stream& stream, const ParameterLayout& layout, const StatisticsUpdate& update);

class ParameterArena {
 public:
  // `gradients` comes from the communicator and holds at least layout.block_bytes(). Weights are allocated, zero.
  ParameterArena(ParameterLayout layout, Backend& backend, Buffer gradients);

  const ParameterLayout& layout() const noexcept { return layout_; }
  // The whole blocks, padding and statistics included.
  Tensor weights() const { return weights_.view(Shape{layout_.block_elements()}, ElementType::f32); }
  Tensor gradients() const { return gradients_.view(Shape{layout_.block_elements()}, ElementType::f32); }
  // The blocks without the statistics.
  Tensor trained_weights() const { return weights_.view(Shape{layout_.trained_elements()}, ElementType::f32); }
  Tensor trained_gradients() const { return gradients_.view(Shape{layout_.trained_elements()}, ElementType::f32); }

 private:
  ParameterLayout layout_;
  Buffer weights_;
  Buffer gradients_;
};

}  // namespace tutti
