#include "tutti/storage/image_arrays.hpp"

#include "tutti/base/crc32c.hpp"
#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays lie in their files as this program uses them");

constexpr std::size_t kLongestName = 1024;

constexpr StoredType type_of(float) { return StoredType::f32; }
constexpr StoredType type_of(double) { return StoredType::f64; }
constexpr StoredType type_of(std::int32_t) { return StoredType::i32; }
constexpr StoredType type_of(std::int64_t) { return StoredType::i64; }

std::int64_t element_bytes(StoredType type) {
  switch (type) {
    case StoredType::f64:
    case StoredType::i64:
      return 8;
    case StoredType::f32:
    case StoredType::i32:
      return 4;
    case StoredType::u8:
    case StoredType::text:
      break;
  }
  return 1;
}

bool is_sane(std::string_view name) {
  if (!name.starts_with('/') || name.size() > kLongestName || name.find('\0') != std::string_view::npos) return false;
  for (std::string_view rest = name; !rest.empty();) {
    rest.remove_prefix(1);
    const std::string_view component = rest.substr(0, rest.find('/'));
    if (component.empty() || component == "." || component == "..") return false;
    rest.remove_prefix(component.size());
  }
  return true;
}

std::span<const std::byte> bytes_of(std::span<const std::byte> image, const StoredArray& array) {
  return image.subspan(static_cast<std::size_t>(array.offset), static_cast<std::size_t>(array.bytes));
}

// What is wrong with where an array is said to lie, and with what lies there; empty when nothing is.
std::string fault_of_place(std::span<const std::byte> image, const StoredArray& array) {
  const auto size = static_cast<std::int64_t>(image.size());
  if (!is_sane(array.name)) return "this is no name for an array";
  if (array.bytes < 0 || array.offset < 0 || array.offset > size || array.bytes > size - array.offset) {
    return fmt::format("its {} bytes from {} on are not within the file's {}", array.bytes, array.offset, size);
  }
  if (array.bytes == 0 && array.offset != 0) return "it has a place in the file, but no bytes";
  if (std::ranges::any_of(array.shape.extents(), [&](std::int64_t extent) { return extent > size; })) {
    return fmt::format("its shape {} is larger than the file", array.shape.text());
  }
  if (array.type == StoredType::text ? array.shape != Shape{} || array.bytes == 0
                                     : array.bytes % element_bytes(array.type) != 0 ||
                                           array.bytes / element_bytes(array.type) != array.shape.elements()) {
    return fmt::format("its {} bytes are not those of the shape {}", array.bytes, array.shape.text());
  }
  return {};
}

std::string fault_of_content(std::span<const std::byte> image, const StoredArray& array) {
  const auto bytes = bytes_of(image, array);
  if (crc32c(bytes) != array.crc32c) return "its bytes do not have their checksum";
  if (array.type == StoredType::text && std::memchr(bytes.data(), 0, bytes.size()) != &bytes.back())
    return "this text does not end in a zero";
  return {};
}

}  // namespace

ImageArrays::ImageArrays(std::span<const std::byte> image, std::vector<StoredArray> arrays, std::string origin)
    : image_(image), arrays_(std::move(arrays)), origin_(std::move(origin)) {
  for (const StoredArray& array : arrays_) {
    if (const std::string fault = fault_of_place(image_, array); !fault.empty()) refuse(array.name, fault);
  }
  std::ranges::sort(arrays_, {}, &StoredArray::offset);
  std::int64_t end = 0;
  for (const StoredArray& array : arrays_) {
    if (array.bytes > 0 && array.offset < end) refuse(array.name, "it lies within another array");
    end = std::max(end, array.offset + array.bytes);
  }
  // Only now, when together they are no longer than the file.
  for (const StoredArray& array : arrays_) {
    if (const std::string fault = fault_of_content(image_, array); !fault.empty()) refuse(array.name, fault);
  }
  std::ranges::sort(arrays_, {}, &StoredArray::name);
  const auto twin = std::ranges::adjacent_find(arrays_, {}, &StoredArray::name);
  if (twin != arrays_.end()) refuse(twin->name, "there are two of this name");
}

void ImageArrays::refuse(const std::string& name, const std::string& fault) const {
  throw Error(ErrorSource::input, fmt::format("'{}', array '{}': {}", origin_, name, fault));
}

bool ImageArrays::contains(const std::string& name) const {
  return std::ranges::binary_search(arrays_, name, {}, &StoredArray::name);
}

std::vector<std::string> ImageArrays::names(const std::string& group) const {
  const std::string front = group.ends_with('/') ? group : group + "/";
  std::vector<std::string> names;
  for (const StoredArray& array : arrays_) {
    if (array.name.starts_with(front)) names.push_back(array.name);
  }
  return names;
}

const StoredArray& ImageArrays::find(const std::string& name) const {
  const auto found = std::ranges::lower_bound(arrays_, name, {}, &StoredArray::name);
  if (found == arrays_.end() || found->name != name) refuse(name, "there is no array of this name");
  return *found;
}

template <class T>
void ImageArrays::read(const std::string& name, const Shape& expected, std::span<T> values) const {
  const StoredArray& array = find(name);
  if (array.type != type_of(T{})) refuse(name, "its elements are of another type");
  if (array.shape != expected) {
    refuse(name, fmt::format("its shape is {} instead of {}", array.shape.text(), expected.text()));
  }
  if (static_cast<std::int64_t>(values.size()) != expected.elements()) {
    refuse(name, fmt::format("{} values are read into room for {}", expected.elements(), values.size()));
  }
  if (!values.empty()) std::memcpy(values.data(), image_.data() + array.offset, values.size_bytes());
}

template void ImageArrays::read(const std::string&, const Shape&, std::span<float>) const;
template void ImageArrays::read(const std::string&, const Shape&, std::span<double>) const;
template void ImageArrays::read(const std::string&, const Shape&, std::span<std::int32_t>) const;
template void ImageArrays::read(const std::string&, const Shape&, std::span<std::int64_t>) const;

Shape ImageArrays::shape(const std::string& name) const { return find(name).shape; }

std::string ImageArrays::read_text(const std::string& name) const {
  const StoredArray& array = find(name);
  if (array.type != StoredType::text) refuse(name, "it is no text");
  const auto bytes = bytes_of(image_, array);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size() - 1};
}

}  // namespace tutti
