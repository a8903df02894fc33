#pragma once
// The operations of TrivialAugmentWide on the bytes of an image, with torchvision's ranges and Pillow's arithmetic.

#include "tutti/base/enum_names.hpp"
#include "tutti/base/shape.hpp"

#include "image_geometry.hpp"

#include <cstdint>
#include <span>

namespace tutti {

enum class Operation {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  auto_contrast,
  equalize
};
constexpr std::array<std::string_view, 14> enum_names(Operation) {
  return {"Identity", "ShearX",   "ShearY",    "TranslateX", "TranslateY", "Rotate",       "Brightness",
          "Color",    "Contrast", "Sharpness", "Posterize",  "Solarize",   "AutoContrast", "Equalize"};
}

struct ImageOperation {
  Operation kind = Operation::identity;
  double magnitude = 0;
};

// With the magnitude `bin` of 0 .. 30, negative if the operation has a sign and this is wanted.
ImageOperation operation_of(Operation kind, int bin, bool negative);
// One of all operations, magnitudes and signs, with equal probability.
ImageOperation draw_operation(std::uint64_t seed, const SampleKey& key);

// `image` is C, H, W, with 1 or 3 channels.
void apply(const ImageOperation& operation, const Shape& image, std::span<std::uint8_t> pixels);

}  // namespace tutti
