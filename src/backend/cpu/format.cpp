#include "backend/cpu/format.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::cpu {

dnnl::memory::dims dims_of(const Shape& shape) {
  const auto extents = shape.extents();
  return {extents.begin(), extents.end()};
}

Desc plain(const dnnl::memory::dims& dims, Type type) {
  dnnl::memory::dims strides(dims.size(), 1);
  for (std::size_t axis = dims.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * dims[axis];
  return {dims, type, strides};
}

Desc channels_last(const dnnl::memory::dims& dims, Type type) { return {dims, type, dnnl::memory::format_tag::nhwc}; }

Desc any(const dnnl::memory::dims& dims, Type type) { return {dims, type, dnnl::memory::format_tag::any}; }

Desc with_type(const Desc& desc, Type type) {
  Desc changed = desc;
  changed.data.data_type = dnnl::memory::convert_to_c(type);
  return changed;
}

bool is_plain(const Desc& desc) { return desc == plain(desc.dims(), desc.data_type()); }

bool pads_channels(const Desc& desc) {
  return !std::equal(desc.data.dims, desc.data.dims + desc.data.ndims, desc.data.padded_dims);
}

ActivationSpec activation_of(const Shape& shape, const Desc& desc) {
  return {shape, std::make_shared<const Format>(desc), desc.get_size()};
}

const Desc& desc_of(const ActivationSpec& activation) {
  const auto* format = dynamic_cast<const Format*>(activation.format.get());
  if (format == nullptr) {
    throw Error(ErrorSource::internal, fmt::format("the format of an activation of {} was not made by the cpu backend",
                                                   activation.shape.text()));
  }
  return format->desc();
}

}  // namespace tutti::cpu
