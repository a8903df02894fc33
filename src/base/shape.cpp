#include "tutti/base/shape.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace tutti {

Shape::Shape(std::initializer_list<std::int64_t> extents)
    : Shape(std::span<const std::int64_t>(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const std::int64_t> extents) {
  if (extents.size() > kMaxDims) {
    throw Error(ErrorSource::internal, fmt::format("a shape has at most {} extents, not {}", kMaxDims, extents.size()));
  }
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 62;
  for (const std::int64_t extent : extents) {
    if (extent < 0) throw Error(ErrorSource::internal, fmt::format("a shape has a negative extent {}", extent));
    if (extent != 0 && elements_ > kMaxElements / extent) {
      throw Error(ErrorSource::input, fmt::format("the shape {} has too many elements", fmt::join(extents, "x")));
    }
    extents_[static_cast<std::size_t>(ndim_++)] = extent;
    elements_ *= extent;
  }
}

std::int64_t Shape::operator[](int axis) const {
  if (axis < 0 || axis >= ndim_) {
    throw Error(ErrorSource::internal, fmt::format("axis {} of the shape {}", axis, text()));
  }
  return extents_[static_cast<std::size_t>(axis)];
}

Shape Shape::with_first(std::int64_t extent) const { return without_first().batch_of(extent); }

Shape Shape::without_first() const {
  if (ndim_ == 0) throw Error(ErrorSource::internal, "a scalar has no first extent");
  return Shape(extents().subspan(1));
}

Shape Shape::batch_of(std::int64_t n) const {
  std::vector<std::int64_t> all{n};
  all.insert(all.end(), extents().begin(), extents().end());
  return Shape(std::span<const std::int64_t>(all));
}

std::string Shape::text() const {
  return ndim_ == 0 ? std::string("scalar") : fmt::format("{}", fmt::join(extents(), "x"));
}

}  // namespace tutti
