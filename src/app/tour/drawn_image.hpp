#pragma once
// An image of a data set in letters, small enough for some to stand side by side.

#include "tutti/data/dataset.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

// Eight rows of sixteen letters, and then the name of its class. Throws what reading throws.
std::string draw_image(const Dataset& data, std::int64_t sample);
std::vector<std::string> lines_of_drawing(const std::string& drawing);

}  // namespace tutti
