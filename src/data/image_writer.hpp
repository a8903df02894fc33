#pragma once
// The pixels of one image as the values a network takes: resampled as a plan says, scaled and normalised. Its
// arithmetic is f32 in a fixed order, so that the bits are the same on any processor. One writer serves one thread.

#include "tutti/data/dataset.hpp"
#include "tutti/data/image_recipe.hpp"

#include "augmentation.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

class ImageWriter {
 public:
  explicit ImageWriter(const ImageRecipe& recipe);

  // `values` are C, H, W as the recipe says.
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
