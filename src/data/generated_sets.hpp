#pragma once
// Data sets that the program draws itself: glyphs and synthetic images. Sample i is a pure function of i, so every
// machine has the same set without a download.

#include "loaded_set.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti {

// Glyphs: digits 0 .. 9 drawn by arithmetic on integers, 1x28x28. Too varied for a linear model, easy for a small
// network.
inline constexpr std::int64_t kGlyphTrainSamples = 20'000;
inline constexpr std::int64_t kGlyphTestSamples = 4'000;

// Samples first .. first + count - 1 of the endless series; each run of ten that begins at a multiple of ten
// holds every digit once.
LabelledImages draw_glyphs(std::int64_t first, std::int64_t count);

// Random images of any size, for measurements and tests: a coarse pattern that belongs to the label, under noise, so
// that a network can learn them. The shape changes the samples.
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
