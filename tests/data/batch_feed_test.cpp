#include "data/batch_feed.hpp"

#include "tutti/base/random.hpp"

#include "support/late_device.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace tutti {
namespace {

using testing_support::LateDevice;
using testing_support::LateFaults;
using testing_support::MemoryBackend;

template <class T>
const T* at(const Tensor& table, std::int64_t row) {
  return static_cast<const T*>(table.data) + row * table.shape.without_first().elements();
}

// One axis of one image, added in the order of PixelWriter: four taps at a time, then one by one.
template <class Input>
float weighted(const AxisTables& axis, std::int64_t image, std::int64_t output, Input input) {
  const std::int64_t outputs = axis.weights.shape[2];
  const std::int32_t taps = *at<std::int32_t>(axis.taps, image);
  const std::int64_t first = at<std::int32_t>(axis.first, image)[output];
  const auto term = [&](std::int64_t tap) {
    return at<float>(axis.weights, image)[tap * outputs + output] * input(first + tap);
  };
  float sum = 0;
  std::int64_t tap = 0;
  for (; tap + 4 <= taps; tap += 4) sum += term(tap) + term(tap + 1) + term(tap + 2) + term(tap + 3);
  for (; tap < taps; ++tap) sum += term(tap);
  return sum;
}

// A reference ImageStore that gathers pixel by pixel.
class PlainStore : public ImageStore {
 public:
  PlainStore(LateDevice& device, const ImageSet& images) : device_(device), images_(images) {}
  void gather(Stream& stream, const ImageGather& request) override {
    device_.enqueue(stream, [this, request] { gather_now(request); });
  }

 private:
  void gather_now(const ImageGather& request) const {
    auto* value = static_cast<float*>(request.images.data);
    for (std::int64_t n = 0; n < request.images.shape[0]; ++n) {
      const std::int32_t sample = *at<std::int32_t>(request.samples, n);
      static_cast<std::int32_t*>(request.labels.data)[n] = images_.labels[static_cast<std::size_t>(sample)];
      for (std::int64_t c = 0; c < images_.image[0]; ++c) {
        const std::uint8_t* const plane =
            images_.pixels.data() + (sample * images_.image[0] + c) * images_.image[1] * images_.image[2];
        for (std::int64_t y = 0; y < request.images.shape[2]; ++y) {
          for (std::int64_t x = 0; x < request.images.shape[3]; ++x) {
            const float sum = weighted(request.columns, n, x, [&](std::int64_t column) {
              return weighted(request.rows, n, y, [&](std::int64_t row) {
                return static_cast<float>(plane[row * images_.image[2] + column]);
              });
            });
            *value++ = (sum / 255.0f - *at<float>(request.means, c)) / *at<float>(request.deviations, c);
          }
        }
      }
    }
  }

  LateDevice& device_;
  ImageSet images_;
};

class Noise {
 public:
  Noise(std::int64_t samples, const Shape& image) {
    RandomSequence random(9, {});
    pixels_.resize(static_cast<std::size_t>(image.batch_of(samples).elements()));
    for (auto& pixel : pixels_) pixel = static_cast<std::uint8_t>(random.next() >> 24);
    for (std::int64_t i = 0; i < samples; ++i) labels_.push_back(static_cast<std::int32_t>(i % 5));
    const DatasetInfo info{.name = "noise", .image = image, .classes = 5, .samples = samples};
    data_ = std::make_unique<MemoryDataset>(info, pixels_, labels_);
  }
  const Dataset& data() const { return *data_; }

 private:
  std::vector<std::uint8_t> pixels_;
  std::vector<std::int32_t> labels_;
  std::unique_ptr<MemoryDataset> data_;
};

struct Values {
  std::vector<float> images;
  std::vector<std::int32_t> labels;
  friend bool operator==(const Values& a, const Values& b) {
    return a.labels == b.labels && a.images.size() == b.images.size() &&
           std::memcmp(a.images.data(), b.images.data(), a.images.size() * sizeof(float)) == 0;
  }
};

Values values_of(const Batch& batch) {
  const auto* images = static_cast<const float*>(batch.images.data);
  const auto* labels = static_cast<const std::int32_t*>(batch.labels.data);
  Values values{{images, images + batch.images.elements()}, {labels, labels + batch.samples}};
  if (batch.labels.others.data == nullptr) return values;
  const auto* others = static_cast<const std::int32_t*>(batch.labels.others.data);
  const auto* shares = static_cast<const float*>(batch.labels.shares.data);
  values.labels.insert(values.labels.end(), others, others + batch.samples);
  values.images.insert(values.images.end(), shares, shares + batch.samples);
  return values;
}

struct Setting {
  unsigned seed = 0;
  bool holds = false;  // whether the device stores the data set
  int steps_ahead = 1;
  LateFaults faults{};
};

LateDevice device_of(const Setting& setting) { return LateDevice(setting.seed, setting.faults); }

LoaderPlan plan_of(const ImageRecipe& recipe, int steps_ahead) {
  return {.batch_size = 7,
          .num_parts = 3,
          .parts = {0, 3},
          .order = {Shuffle::global, 5},
          .steps_ahead = steps_ahead,
          .readers = 2,
          .recipe = recipe};
}

constexpr int kFedSteps = 12;

// The batches on the CPU backend, by step and part.
std::vector<Values> expected_batches(const Dataset& data, const LoaderPlan& plan) {
  MemoryBackend host;
  const auto stream = host.make_stream();
  BatchLoader loader(data, host, plan);
  std::vector<Values> all;
  for (int step = 0; step < kFedSteps; ++step) {
    for (const Batch& batch : loader.next(*stream).batches) all.push_back(values_of(batch));
  }
  return all;
}

// The number of batches that differ from the CPU backend's when the device uses them.
int wrong_batches(const Dataset& data, const ImageRecipe& recipe, const Setting& setting) {
  const LoaderPlan plan = plan_of(recipe, setting.steps_ahead);
  const std::vector<Values> expected = expected_batches(data, plan);
  LateDevice device = device_of(setting);
  if (setting.holds) {
    device.make_store = [](LateDevice& on, const ImageSet& images) { return std::make_unique<PlainStore>(on, images); };
  }
  const auto stream = device.make_stream();
  BatchLoader loader(data, device, plan);
  int wrong = 0;
  auto next = expected.begin();
  for (int step = 0; step < kFedSteps; ++step) {
    for (const Batch& batch : loader.next(*stream).batches) {
      device.enqueue(*stream, [&wrong, batch, expected = *next++] { wrong += values_of(batch) == expected ? 0 : 1; });
    }
  }
  stream->synchronize();
  return wrong;
}

ImageRecipe recipe_of(Crop augment, const Shape& image) {
  ImageRecipe recipe;
  recipe.augment = augment;
  recipe.augment.shift = 3;
  recipe.image = image;
  recipe.statistics = {.mean = {0.1307, 0.4, 0.5}, .deviation = {0.3081, 0.2, 0.25}};
  recipe.seed = 3;
  return recipe;
}

TEST(BatchFeed, DeliversTheHostsBatchesToADeviceInAnyOrderOfItsStreams) {
  const Noise noise(40, Shape{3, 8, 8});
  ImageRecipe recipe = recipe_of(Crop::pad_crop_flip, Shape{3, 8, 8});
  for (const bool holds : {false, true}) {
    recipe.augment.mixup = holds ? 0 : 1;
    for (const int steps_ahead : {0, 1, 2}) {
      for (unsigned seed = 0; seed < 40; ++seed) {
        ASSERT_EQ(wrong_batches(noise.data(), recipe, {.seed = seed, .holds = holds, .steps_ahead = steps_ahead}), 0)
            << "seed " << seed << ", " << steps_ahead << " steps ahead" << (holds ? ", stored" : "");
      }
    }
  }
}

TEST(BatchFeed, DetectsAnyMissingWait) {
  const Noise noise(40, Shape{3, 8, 8});
  const ImageRecipe recipe = recipe_of(Crop::pad_crop_flip, Shape{3, 8, 8});
  for (const bool holds : {false, true}) {
    for (const LateFaults& faults :
         {LateFaults{.lost_wait_event = 0}, LateFaults{.lost_wait_event = 1}, LateFaults{.lost_awaits = true}}) {
      int wrong = 0;
      for (unsigned seed = 0; seed < 20; ++seed) {
        wrong += wrong_batches(noise.data(), recipe, {.seed = seed, .holds = holds, .faults = faults});
      }
      EXPECT_GT(wrong, 0) << (faults.lost_awaits ? "awaits" : "follows") << (holds ? ", stored" : "");
    }
  }
}

TEST(BatchFeed, GivesTheSameBitsOnADeviceThatStoresTheDataSet) {
  const std::vector<std::pair<Shape, Shape>> sizes{{Shape{3, 16, 16}, Shape{3, 16, 16}},
                                                   {Shape{3, 20, 30}, Shape{3, 12, 12}},
                                                   {Shape{3, 5, 7}, Shape{3, 8, 8}},
                                                   {Shape{3, 40, 3}, Shape{3, 7, 7}},
                                                   {Shape{3, 70, 70}, Shape{3, 9, 9}}};
  for (const Crop augment : {Crop::none, Crop::crop_flip, Crop::pad_crop_flip, Crop::resized_crop, Crop::shift}) {
    for (const auto& [image, expected] : sizes) {
      const Noise noise(40, image);
      EXPECT_EQ(wrong_batches(noise.data(), recipe_of(augment, expected), {.holds = true}), 0)
          << name_of(augment) << " of " << image.text();
    }
  }
}

TEST(BatchFeed, DeliversEachPartToAFixedAddress) {
  const Noise noise(40, Shape{3, 8, 8});
  LateDevice device(1);
  const auto stream = device.make_stream();
  BatchLoader loader(noise.data(), device, plan_of(recipe_of(Crop::none, Shape{3, 8, 8}), 2));
  std::map<int, const void*> places;
  for (int step = 0; step < kFedSteps; ++step) {
    for (const Batch& batch : loader.next(*stream).batches) {
      EXPECT_EQ(places.emplace(batch.part, batch.images.data).first->second, batch.images.data);
    }
  }
  stream->synchronize();
}

// The images have the pixels 0 to 8 and 9 to 17.
TEST(BatchFeedReader, MovesAndMirrorsImagesAndReflectsThemAtTheEdges) {
  std::vector<std::uint8_t> pixels(18);
  std::iota(pixels.begin(), pixels.end(), std::uint8_t{0});
  const std::vector<std::int32_t> labels{0, 1};
  const DatasetInfo info{.name = "counted", .image = Shape{1, 3, 3}, .classes = 2, .samples = 2};
  const MemoryDataset data(info, pixels, labels);
  for (const bool holds : {false, true}) {
    LateDevice device = device_of({.holds = holds});
    const auto stream = device.make_stream();
    ChunkReader reader(data, device, {}, 2);
    const auto second_image = [&](const ChunkView& view) {
      const Batch batch = reader.read(*stream, 0, 2, view);
      stream->synchronize();
      std::vector<int> seen;
      for (const float value : values_of(batch).images) seen.push_back(static_cast<int>(std::lround(value * 255)) - 9);
      return std::vector(seen.begin() + 9, seen.end());
    };
    EXPECT_EQ(second_image({}), (std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8}));
    EXPECT_EQ(second_image({.mirrored = true}), (std::vector{2, 1, 0, 5, 4, 3, 8, 7, 6}));
    EXPECT_EQ(second_image({.shift = 1}), (std::vector{4, 5, 4, 7, 8, 7, 4, 5, 4}));
    EXPECT_EQ(second_image({.shift = -1}), (std::vector{4, 3, 4, 1, 0, 1, 4, 3, 4}));
    EXPECT_EQ(second_image({.shift = -1, .mirrored = true}), (std::vector{4, 3, 4, 1, 0, 1, 4, 3, 4}));
  }
}

TEST(BatchFeed, PreparesOnTheHostWhatADeviceThatStoresTheDataSetCannot) {
  const Noise noise(40, Shape{3, 8, 8});
  ImageRecipe recipe = recipe_of(Crop::none, Shape{3, 8, 8});
  for (const char* const augment : {"trivial", "rotate:30", "jitter:0.4", "erase:0.5", "mixup:0.2", "cutmix:1"}) {
    recipe.augment = parse_augment(augment);
    EXPECT_EQ(wrong_batches(noise.data(), recipe, {.holds = true}), 0) << augment;
  }
}

// Erased values are 0 after normalization, and other values are as they would be without.
TEST(BatchFeed, ErasesToTheMean) {
  const Noise noise(40, Shape{3, 8, 8});
  ImageRecipe recipe = recipe_of(Crop::none, Shape{3, 8, 8});
  const auto whole = expected_batches(noise.data(), plan_of(recipe, 0));
  recipe.augment = parse_augment("erase:1");
  const auto erased = expected_batches(noise.data(), plan_of(recipe, 0));
  std::int64_t zeros = 0;
  std::int64_t all = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (std::size_t k = 0; k < whole[i].images.size(); ++k) {
      const float value = erased[i].images[k];
      ASSERT_TRUE(value == 0 || value == whole[i].images[k]);
      zeros += value == 0 ? 1 : 0;
      ++all;
    }
  }
  EXPECT_NEAR(static_cast<double>(zeros) / static_cast<double>(all), 0.17, 0.03);
}

TEST(BatchFeedReader, ReadsForADeviceInAnyOrderOfItsStreams) {
  const Noise noise(40, Shape{3, 8, 8});
  const ImageRecipe recipe = recipe_of(Crop::crop_flip, Shape{3, 8, 8});
  const auto wrong_chunks = [&](const Setting& setting) {
    MemoryBackend host;
    const auto here = host.make_stream();
    ChunkReader expected(noise.data(), host, recipe, 8);
    LateDevice device = device_of(setting);
    const auto stream = device.make_stream();
    ChunkReader reader(noise.data(), device, recipe, 8);
    int wrong = 0;
    for (std::int64_t first = 0; first < 40; first += 8) {
      device.enqueue(*stream, [&wrong, batch = reader.read(*stream, first, 8),
                               expected = values_of(expected.read(*here, first, 8))] {
        wrong += values_of(batch) == expected ? 0 : 1;
      });
    }
    stream->synchronize();
    return wrong;
  };
  int noticed = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    EXPECT_EQ(wrong_chunks({.seed = seed}), 0);
    noticed += wrong_chunks({.seed = seed, .faults = {.lost_awaits = true}});
  }
  EXPECT_GT(noticed, 0);
}

}  // namespace
}  // namespace tutti
