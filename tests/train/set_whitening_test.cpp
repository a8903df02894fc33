#include "tutti/data/dataset.hpp"
#include "tutti/train/trainer.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace tutti {
namespace {

// Random pixels. Records which samples are read.
class Noise : public Dataset {
 public:
  Noise(std::int64_t samples, std::int64_t side)
      : info_{.name = "noise", .image = Shape{1, side, side}, .classes = 2, .samples = samples} {}
  const DatasetInfo& info() const override { return info_; }
  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override {
    pixels_.resize(static_cast<std::size_t>(info_.image.elements()));
    for (std::uint8_t& pixel : pixels_) pixel = static_cast<std::uint8_t>((state_ = state_ * 48271 % 0x7fffffff) >> 8);
    batch.images.assign(samples.size(), {pixels_.data(), info_.image});
    batch.labels.assign(samples.size(), 0);
    seen.insert(samples.begin(), samples.end());
  }
  std::size_t resident_bytes() const override { return 0; }
  std::uint64_t digest() const override { return 0; }

  mutable std::set<std::int64_t> seen;

 private:
  DatasetInfo info_;
  mutable std::vector<std::uint8_t> pixels_;
  mutable std::uint64_t state_ = 1;
};

std::set<std::int64_t> samples_read(std::int64_t samples, std::int64_t side) {
  NetworkSpec spec{.name = "net",
                   .layers = {{"whiten", Conv2dSpec{2, 3}}, {"head", LinearSpec{.units = kUnitsFromClasses}}}};
  spec.layers.front().initializer = LayerInitializer::whitening;
  const Noise data(samples, side);
  Network network(spec, data.info().image, 2);
  ImageRecipe recipe;
  recipe.augment = parse_augment("crop-flip,mixup:1");
  set_whitening(network, data, recipe);
  EXPECT_EQ(network.layers()[0].whitening.size(), 2 * 9U);
  return data.seen;
}

TEST(SetWhitening, ReadsTheFirstImagesAndOfLargeImagesFewerFromTheWholeDataSet) {
  for (const std::int64_t samples : {70, 5100}) {
    const auto first = samples_read(samples, 8);
    EXPECT_EQ(std::ssize(first), std::min<std::int64_t>(samples, 5000));
    EXPECT_EQ(*first.rbegin(), std::ssize(first) - 1);
  }
  const auto spread = samples_read(1000, 322);  // 320 x 320 patches each
  EXPECT_EQ(spread.size(), 50U);
  EXPECT_EQ(*spread.rbegin(), 980);
}

}  // namespace
}  // namespace tutti
