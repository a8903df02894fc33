#pragma once
// The layouts in which the CPU backend's layers exchange images.

#include "backend/cpu/format.hpp"
#include "backend/layer_contract.hpp"

namespace tutti::testing_support {

inline std::vector<LayoutUnderTest> cpu_layouts(ElementType type) {
  using cpu::ChannelOrder;
  std::vector<LayoutUnderTest> layouts;
  for (const auto& [name, order] :
       {std::pair("nchw", ChannelOrder::plain), std::pair("nhwc", ChannelOrder::channels_last),
        std::pair("nChw16c", ChannelOrder::blocks)}) {
    layouts.push_back({name, [type, order](const Shape& shape) { return cpu::activation_of({shape, type, order}); }});
  }
  return layouts;
}

}  // namespace tutti::testing_support
