#pragma once
// A range of indices, and the extents of an array, outermost first: N, C, H, W for images; O, I, H, W for convolution
// weights.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace tutti {

// The integers begin .. end - 1.
struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

class Shape {
 public:
  static constexpr int kMaxDims = 4;

  Shape() = default;  // a scalar: no dimensions, one element
  // Throws on negative extents, more than kMaxDims extents, or a product beyond 2^62.
  Shape(std::initializer_list<std::int64_t> extents);
  explicit Shape(std::span<const std::int64_t> extents);

  int ndim() const noexcept { return ndim_; }
  std::int64_t operator[](int axis) const;
  std::int64_t elements() const noexcept { return elements_; }
  std::span<const std::int64_t> extents() const noexcept { return {extents_.data(), static_cast<std::size_t>(ndim_)}; }

  // This shape with its first extent replaced: the same network at another batch size.
  Shape with_first(std::int64_t extent) const;
  // One element of the first axis: an image of a batch.
  Shape without_first() const;
  // A batch of n elements of this shape.
  Shape batch_of(std::int64_t n) const;

  std::string text() const;  // "64x1x28x28"; "scalar" without dimensions

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, kMaxDims> extents_{};
  int ndim_ = 0;
  std::int64_t elements_ = 1;
};

}  // namespace tutti
