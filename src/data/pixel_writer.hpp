#pragma once
// Converts the pixels of one image to network inputs: resampled by a plan, scaled and normalized. Its arithmetic is f32
// in a fixed order, so the bits are the same on any processor. Not thread-safe.

#include "tutti/data/dataset.hpp"
#include "tutti/data/image_recipe.hpp"

#include "image_geometry.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

// How pixels become values.
struct Normal {
  float mean = 0;
  float deviation = 1;

  float value(float pixel) const { return (pixel / 255.0f - mean) / deviation; }
};

// The byte of a value of 0 to 1, as PixelWriter writes it without normalization.
inline std::uint8_t byte_of(float value) { return static_cast<std::uint8_t>(value * 255.0f + 0.5f); }

class PixelWriter {
 public:
  explicit PixelWriter(const ImageRecipe& recipe);

  // `values` have the recipe's shape C, H, W.
  void write(const ImageView& image, const ImagePlan& plan, std::span<float> values);
  // From pixels of region_of(plan).
  void write(const RegionPixels& pixels, const ImagePlan& plan, std::span<float> values);
  // The part of the image that the plan uses.
  ImageRegion region_of(const ImagePlan& plan);

 private:
  struct Channel {
    Normal normal;
    std::array<float, 256> values{};  // by pixel
  };

  void copy(const Channel& channel, const RegionPixels& pixels, std::span<float> values) const;
  void resample(const RegionPixels& pixels, std::span<float> values);

  Shape shape_;
  std::vector<Channel> channels_;
  AxisWeights rows_;
  AxisWeights columns_;
  std::vector<std::uint8_t> upright_;  // pixels that were stored in another order
  std::vector<float> sums_;            // a few output rows before their columns are resampled
};

}  // namespace tutti
