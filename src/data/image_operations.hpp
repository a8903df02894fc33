#pragma once
// Operations on the bytes of an image: torchvision's RandomRotation, ColorJitter, TrivialAugmentWide and RandAugment,
// with their ranges and Pillow's arithmetic. Mixup and cutmix work on the values of two images.

#include "tutti/base/enum_names.hpp"
#include "tutti/base/shape.hpp"

#include "image_geometry.hpp"

#include <cstdint>
#include <span>
#include <vector>

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
  equalize,
  hue  // of ColorJitter alone
};
constexpr std::array<std::string_view, 15> enum_names(Operation) {
  return {"Identity", "ShearX",    "ShearY",    "TranslateX", "TranslateY",   "Rotate",   "Brightness", "Color",
          "Contrast", "Sharpness", "Posterize", "Solarize",   "AutoContrast", "Equalize", "Hue"};
}

struct ImageOperation {
  Operation kind = Operation::identity;
  double magnitude = 0;
};

// The ranges of magnitudes of TrivialAugmentWide, and those of RandAugment for images of this width and height.
enum class Magnitudes { wide, rand_augment };
// With the magnitude `bin` of 0 .. 30, negative if the operation has a sign and this is wanted.
ImageOperation operation_of(Operation kind, int bin, bool negative, Magnitudes range, const Shape& image);
// What --augment does to the bytes of a sample of this shape: the rotation, the jitter in random order, and the
// operations of trivial or randaugment.
std::vector<ImageOperation> draw_operations(const Augment& augment, std::uint64_t seed, const SampleKey& key,
                                            const Shape& image);

// `image` is C, H, W, with 1 or 3 channels.
void apply(const ImageOperation& operation, const Shape& image, std::span<std::uint8_t> pixels);

struct Mixing {
  float share = 1;  // of a sample itself; the rest is its partner's
  // The rectangle that cutmix takes from the partner; empty with mixup, which adds the two images.
  IndexRange rows{};
  IndexRange columns{};
  bool cuts = false;
};
// The same for all samples of a step. `step` is within the epoch.
Mixing draw_mixing(const ImageRecipe& recipe, std::int64_t epoch, std::int64_t step);

// Mixes each of two images, C, H, W, with the other.
void mix_images(const Mixing& mixing, const Shape& image, float* one, float* other);

}  // namespace tutti
