#pragma once
// Typed views of memory, and the owner of that memory.

#include "tutti/base/enum_names.hpp"
#include "tutti/base/shape.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace tutti {

enum class ElementType { f32, bf16, f64, u8, i32, i64 };
constexpr std::array<std::string_view, 6> enum_names(ElementType) { return {"f32", "bf16", "f64", "u8", "i32", "i64"}; }
enum class MemorySpace { host, cuda };

constexpr std::size_t bytes_of(ElementType type) {
  switch (type) {
    case ElementType::u8:
      return 1;
    case ElementType::bf16:
      return 2;
    case ElementType::f32:
    case ElementType::i32:
      return 4;
    case ElementType::f64:
    case ElementType::i64:
      return 8;
  }
  return 0;
}

// A view in canonical (dense, row-major) layout. Borrowed.
struct Tensor {
  void* data = nullptr;
  Shape shape;
  ElementType type = ElementType::f32;
  MemorySpace space = MemorySpace::host;

  std::int64_t elements() const { return shape.elements(); }
  std::size_t bytes() const { return static_cast<std::size_t>(shape.elements()) * bytes_of(type); }
};

// These elements of a tensor, as a one-dimensional tensor on the same memory.
Tensor elements_of(const Tensor& block, IndexRange range);

// The labels of a batch, i32 N. In a mixed batch, each sample has a second label, and the first one's share.
struct Labels : Tensor {
  Tensor others{};  // i32 N; empty: not mixed
  Tensor shares{};  // f32 N, at least 1/2
};

// The values of a tensor in host memory. Throws if the element type differs or the memory is not host memory.
std::span<float> host_f32(const Tensor& tensor);
std::span<double> host_f64(const Tensor& tensor);
std::span<std::int32_t> host_i32(const Tensor& tensor);
std::span<std::int64_t> host_i64(const Tensor& tensor);

// The sole owner of a block of memory, with the function that releases it.
class Buffer {
 public:
  using Release = std::function<void(void* data) /* never throws */>;

  Buffer() = default;
  Buffer(void* data, std::size_t bytes, MemorySpace space, Release release)
      : data_(data, std::move(release)), bytes_(bytes), space_(space) {}

  void* data() const noexcept { return data_.get(); }
  std::size_t bytes() const noexcept { return bytes_; }
  MemorySpace space() const noexcept { return space_; }
  // A view of the block from byte_offset on. Throws if it does not fit.
  Tensor view(const Shape& shape, ElementType type, std::size_t byte_offset = 0) const;

 private:
  std::unique_ptr<void, Release> data_;
  std::size_t bytes_ = 0;
  MemorySpace space_ = MemorySpace::host;
};

// Host memory, zeroed and aligned to 64 bytes. Pages of large blocks are committed when they are first written.
Buffer allocate_host(std::size_t bytes);

}  // namespace tutti
