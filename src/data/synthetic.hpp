#pragma once
// Random images of any size, for measurements and tests: a coarse pattern that belongs to the label, under
// noise, so that a network can learn them. Sample i is a pure function of i and of the shape.

#include "labelled_images.hpp"

#include <cstdint>
#include <string_view>

namespace tutti {

struct SyntheticSpec {
  std::int64_t samples = 0;
  Shape image;
  int classes = 0;
};

// Reads "NxCxHxW:classes". Throws a usage error that shows an example.
SyntheticSpec parse_synthetic(std::string_view text);

// Samples first .. first + count - 1 of the endless series.
LabelledImages draw_synthetic(const SyntheticSpec& spec, std::int64_t first, std::int64_t count);

}  // namespace tutti
