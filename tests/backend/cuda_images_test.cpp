#include "tutti/backend/cuda_library.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"

#include "backend/device_values.hpp"
#include "data/image_geometry.hpp"
#include "data/pixel_writer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tutti::testing_support {
namespace {

// One axis of a batch, on the host.
struct AxisOfBatch {
  std::vector<std::int32_t> taps;
  std::vector<std::int32_t> first;
  std::vector<float> weights;  // by image, tap, output
  std::int64_t most_taps = 1;
  std::int64_t outputs = 0;

  AxisOfBatch(const std::vector<AxisPlan>& plans) : outputs(plans.front().output) {
    std::vector<AxisWeights> axes(plans.size());
    for (std::size_t n = 0; n < plans.size(); ++n) {
      axes[n].plan(plans[n]);
      most_taps = std::max(most_taps, axes[n].taps());
    }
    for (const AxisWeights& axis : axes) {
      taps.push_back(static_cast<std::int32_t>(axis.taps()));
      for (const std::int64_t input : axis.first()) first.push_back(static_cast<std::int32_t>(input));
      for (std::int64_t tap = 0; tap < most_taps; ++tap) {
        for (std::int64_t i = 0; i < outputs; ++i) {
          // Values that are not read must not matter.
          weights.push_back(tap < axis.taps() ? axis.weights(tap)[i] : std::nanf(""));
        }
      }
    }
  }
};

// Keeps what it uploads.
class Uploads {
 public:
  explicit Uploads(Device& device) : device_(device) {}

  template <class T>
  Tensor operator()(const std::vector<T>& values, const Shape& shape, ElementType type) {
    buffers_.push_back(device_.backend().allocate(values.size() * sizeof(T)));
    const Tensor tensor = buffers_.back().view(shape, type);
    device_.upload(tensor, values);
    return tensor;
  }

  AxisTables operator()(const AxisOfBatch& axis) {
    const auto images = std::ssize(axis.taps);
    return {(*this)(axis.taps, {images}, ElementType::i32),
            (*this)(axis.first, {images, axis.outputs}, ElementType::i32),
            (*this)(axis.weights, {images, axis.most_taps, axis.outputs}, ElementType::f32)};
  }

 private:
  Device& device_;
  std::vector<Buffer> buffers_;
};

struct Case {
  Crop augment;
  Shape stored;  // C, H, W
  std::int64_t side;
};

std::ostream& operator<<(std::ostream& out, const Case& each) {
  return out << name_of(each.augment) << " of " << each.stored.text() << " to " << each.side;
}

class CudaImages : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr std::int64_t kImages = 7;

  CudaImages() : pixels_(static_cast<std::size_t>(kImages * GetParam().stored.elements())) {
    RandomSequence random(7, {.purpose = random_purpose("noise")});
    for (auto& pixel : pixels_) pixel = static_cast<std::uint8_t>(random.next() >> 24);
    recipe_.augment = GetParam().augment;
    recipe_.augment.shift = 3;
    recipe_.image = Shape{GetParam().stored[0], GetParam().side, GetParam().side};
    recipe_.seed = 3;
    for (std::int64_t c = 0; c < recipe_.image[0]; ++c) {
      recipe_.statistics.mean.push_back(0.1 + 0.2 * static_cast<double>(c));
      recipe_.statistics.deviation.push_back(0.3 + 0.1 * static_cast<double>(c));
    }
  }

  ImageView image(std::int32_t sample) const {
    return {pixels_.data() + sample * GetParam().stored.elements(), GetParam().stored};
  }

  std::vector<float> written(const std::vector<std::int32_t>& samples, const std::vector<ImagePlan>& plans) const {
    const auto each = static_cast<std::size_t>(recipe_.image.elements());
    std::vector<float> values(samples.size() * each);
    PixelWriter writer(recipe_);
    for (std::size_t n = 0; n < samples.size(); ++n) {
      writer.write(image(samples[n]), plans[n], std::span(values).subspan(n * each, each));
    }
    return values;
  }

  std::vector<std::uint8_t> pixels_;
  const std::vector<std::int32_t> labels_{5, 3, 8, 1, 0, 9, 2};
  ImageRecipe recipe_;
  Device device_{tutti_cuda_library().make_backend({})};
};

std::vector<float> floats(const std::vector<double>& values) { return {values.begin(), values.end()}; }

TEST_P(CudaImages, HaveTheBitsOfTheHostsWriter) {
  const auto store = device_.backend().upload_dataset({pixels_, labels_, GetParam().stored});
  ASSERT_NE(store, nullptr);
  const std::vector<std::int32_t> samples{6, 0, 3, 3, 1, 5, 2, 4, 0};
  const auto count = std::ssize(samples);
  std::vector<ImagePlan> plans;
  std::vector<AxisPlan> rows;
  std::vector<AxisPlan> columns;
  for (std::int64_t n = 0; n < count; ++n) {
    plans.push_back(plan_image(recipe_, GetParam().stored, {.sample = n, .epoch = 1}));
    rows.push_back(plans.back().rows);
    columns.push_back(plans.back().columns);
  }
  Uploads upload(device_);
  const Shape made{count, recipe_.image[0], recipe_.image[1], recipe_.image[2]};
  const Tensor images =
      upload(std::vector<float>(static_cast<std::size_t>(made.elements()), -77.0f), made, ElementType::f32);
  const Tensor labels = upload(std::vector<std::int32_t>(samples.size()), {count}, ElementType::i32);
  const Shape channels{recipe_.image[0]};
  store->gather(device_.stream(),
                {.samples = upload(samples, {count}, ElementType::i32),
                 .rows = upload(AxisOfBatch(rows)),
                 .columns = upload(AxisOfBatch(columns)),
                 .means = upload(floats(recipe_.statistics.mean), channels, ElementType::f32),
                 .deviations = upload(floats(recipe_.statistics.deviation), channels, ElementType::f32),
                 .images = images,
                 .labels = {labels}});
  EXPECT_TRUE(same_bits(device_.download<float>(images), written(samples, plans)));
  EXPECT_EQ(device_.download<std::int32_t>(labels), (std::vector<std::int32_t>{2, 5, 1, 1, 3, 9, 8, 0, 5}));
}

INSTANTIATE_TEST_SUITE_P(Recipes, CudaImages,
                         ::testing::Values(Case{Crop::none, Shape{1, 28, 28}, 28},       //
                                           Case{Crop::none, Shape{3, 40, 50}, 32},       //
                                           Case{Crop::none, Shape{1, 8, 8}, 21},         //
                                           Case{Crop::none, Shape{1, 150, 150}, 8},      //
                                           Case{Crop::crop_flip, Shape{3, 32, 32}, 32},  //
                                           Case{Crop::pad_crop_flip, Shape{1, 28, 28}, 28},
                                           Case{Crop::pad_crop_flip, Shape{3, 48, 36}, 32},
                                           Case{Crop::shift, Shape{3, 32, 32}, 32},  //
                                           Case{Crop::shift, Shape{3, 48, 36}, 32},  //
                                           Case{Crop::resized_crop, Shape{3, 60, 80}, 24},
                                           Case{Crop::resized_crop, Shape{1, 100, 300}, 64}));

TEST(CudaImageStore, IsNotUsedForTooManyImages) {
  const auto backend = tutti_cuda_library().make_backend({});
  const std::vector<std::uint8_t> pixels(5000);
  const std::vector<std::int32_t> labels(1);
  EXPECT_EQ(backend->upload_dataset({pixels, labels, {1, 1, 5000}}), nullptr) << "too wide";
  EXPECT_NE(backend->upload_dataset({pixels, labels, {1, 5000, 1}}), nullptr);
  EXPECT_THROW(backend->upload_dataset({pixels, labels, {1, 50, 10}}), Error);
}

}  // namespace
}  // namespace tutti::testing_support
