#include "tutti/backend/tensor.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

namespace tutti {
namespace {

template <class T>
std::span<T> host_values(const Tensor& tensor, ElementType type) {
  if (tensor.type != type) {
    throw Error(ErrorSource::internal,
                fmt::format("a tensor of {} is read as {}", name_of(tensor.type), name_of(type)));
  }
  if (tensor.space != MemorySpace::host) {
    throw Error(ErrorSource::internal, "a tensor in device memory is read as the host's");
  }
  return {static_cast<T*>(tensor.data), static_cast<std::size_t>(tensor.elements())};
}

}  // namespace

std::string_view name_of(ElementType type) {
  switch (type) {
    case ElementType::f32:
      return "f32";
    case ElementType::bf16:
      return "bf16";
    case ElementType::f64:
      return "f64";
    case ElementType::u8:
      return "u8";
    case ElementType::i32:
      return "i32";
    case ElementType::i64:
      return "i64";
  }
  return "?";
}

std::span<float> host_f32(const Tensor& tensor) { return host_values<float>(tensor, ElementType::f32); }
std::span<double> host_f64(const Tensor& tensor) { return host_values<double>(tensor, ElementType::f64); }
std::span<std::int32_t> host_i32(const Tensor& tensor) { return host_values<std::int32_t>(tensor, ElementType::i32); }
std::span<std::int64_t> host_i64(const Tensor& tensor) { return host_values<std::int64_t>(tensor, ElementType::i64); }

Tensor Buffer::view(const Shape& shape, ElementType type, std::size_t byte_offset) const {
  const Tensor tensor{static_cast<std::byte*>(data_) + byte_offset, shape, type, space_};
  if (byte_offset > bytes_ || tensor.bytes() > bytes_ - byte_offset) {
    throw Error(ErrorSource::internal, fmt::format("a view of {} bytes at {} leaves a block of {} bytes",
                                                   tensor.bytes(), byte_offset, bytes_));
  }
  return tensor;
}

}  // namespace tutti
