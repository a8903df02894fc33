#pragma once
// The layouts in which the CPU backend's layers exchange images.

#include "backend/cpu/format.hpp"
#include "backend/layer_contract.hpp"

namespace tutti::testing_support {

inline std::vector<LayoutUnderTest> cpu_layouts(dnnl::memory::data_type type) {
  using Tag = dnnl::memory::format_tag;
  std::vector<LayoutUnderTest> layouts;
  for (const auto& [name, tag] : {std::pair("nchw", Tag::nchw), std::pair("nhwc", Tag::nhwc),
                                  std::pair("nChw8c", Tag::nChw8c), std::pair("nChw16c", Tag::nChw16c)}) {
    layouts.push_back({name, [type, tag](const Shape& shape) {
                         return cpu::activation_of(shape, {cpu::dims_of(shape), type, tag});
                       }});
  }
  return layouts;
}

}  // namespace tutti::testing_support
