#pragma once
// How a network's layers are connected: names become numbers, and shapes follow from the image's. Knows no parameters.

#include "tutti/nn/network.hpp"

#include <optional>
#include <string>
#include <vector>

namespace tutti {

struct Misfit {
  std::string layer;
  std::string why;
};

// The layers without shapes. Throws an input error for names that are used twice or mean no earlier layer, and for
// outputs that nobody reads.
std::vector<NetworkLayer> connect_layers(const NetworkSpec& spec);

// Fills in the shapes, up to the first layer that does not fit.
std::optional<Misfit> find_shapes(std::vector<NetworkLayer>& layers, const Shape& sample);

// "; the least size is 32x32" where square images of some size fit, else nothing.
std::string least_size_text(std::vector<NetworkLayer> layers, const Shape& sample);

}  // namespace tutti
