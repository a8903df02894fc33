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

class PixelWriter {
 public:
  explicit PixelWriter(const ImageRecipe& recipe);

  // `values` have the recipe's shape C, H, W.
  void write(const ImageView& image, const ImagePlan& plan, std::span<float> values);

 private:
  struct Normal {
    float mean = 0;
    float deviation = 1;

    float value(float pixel) const { return (pixel / 255.0f - mean) / deviation; }
  };
  struct Channel {
    Normal normal;
    std::array<float, 256> values{};  // by pixel
  };

  void copy(const Channel& channel, const ImageView& image, const std::uint8_t* pixels, std::span<float> values) const;
  void resample(const Channel& channel, const ImageView& image, const std::uint8_t* pixels, std::span<float> values);

  Shape shape_;
  std::vector<Channel> channels_;
  AxisWeights rows_;
  AxisWeights columns_;
  std::vector<float> row_;  // one output row before its columns are resampled
};

}  // namespace tutti
