#include "backend/cpu/format.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

namespace tutti::cpu {

dnnl::memory::dims dims_of(const Shape& shape) {
  const auto extents = shape.extents();
  return {extents.begin(), extents.end()};
}

// Versions 2 and 3 of oneDNN name the same facts differently.
dnnl::memory::dims dims_of(const Desc& desc) {
  return [](const auto& of) {
    if constexpr (requires { of.get_dims(); }) {
      return of.get_dims();
    } else {
      return of.dims();
    }
  }(desc);
}

Type type_of(const Desc& desc) {
  return [](const auto& of) {
    if constexpr (requires { of.get_data_type(); }) {
      return of.get_data_type();
    } else {
      return of.data_type();
    }
  }(desc);
}

// Only the layout's own name gives its descriptor again.
Tag tag_of(const Desc& desc) {
  const auto dims = dims_of(desc);
  const auto is = [&](Tag tag) { return Desc(dims, type_of(desc), tag) == desc; };
  if (dims.size() == 2 && is(Tag::nc)) return Tag::nc;
  if (dims.size() == 4) {
    for (const Tag tag : {Tag::nchw, Tag::nhwc, Tag::nChw8c, Tag::nChw16c}) {
      if (is(tag)) return tag;
    }
  }
  throw Error(
      ErrorSource::internal,
      fmt::format("an activation with {} axes lies in a layout that the cpu backend does not know", dims.size()));
}

Desc plain(const dnnl::memory::dims& dims, Type type) {
  dnnl::memory::dims strides(dims.size(), 1);
  for (std::size_t axis = dims.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * dims[axis];
  return {dims, type, strides};
}

Desc channels_last(const dnnl::memory::dims& dims, Type type) { return {dims, type, Tag::nhwc}; }

Desc any(const dnnl::memory::dims& dims, Type type) { return {dims, type, Tag::any}; }

Desc with_type(const Desc& desc, Type type) {
  return type_of(desc) == type ? desc : Desc(dims_of(desc), type, tag_of(desc));
}

bool is_plain(const Desc& desc) { return desc == plain(dims_of(desc), type_of(desc)); }

bool pads_channels(const Desc& desc) { return desc.get_size() != plain(dims_of(desc), type_of(desc)).get_size(); }

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
