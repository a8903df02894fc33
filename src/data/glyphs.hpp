#pragma once
// The built-in data set: digits 0 .. 9 drawn by arithmetic on integers, 1x28x28. Sample i is a pure function
// of i, so every machine has the same set without a download. Too varied for a linear model, easy for a small
// network.

#include "labelled_images.hpp"

#include <cstdint>

namespace tutti {

inline constexpr std::int64_t kGlyphTrainSamples = 20'000;
inline constexpr std::int64_t kGlyphTestSamples = 4'000;

// Samples first .. first + count - 1 of the endless series; each run of ten that begins at a multiple of ten
// holds every digit once.
LabelledImages draw_glyphs(std::int64_t first, std::int64_t count);

}  // namespace tutti
