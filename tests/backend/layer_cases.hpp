#pragma once
// The layers and short networks for tests of every backend: odd extents, and formats passed from layer to
// layer. all_cases() has all but small_cases(); a new layer has its own cases there, or joins those it is like. A new
// function has them without being named.

#include "tutti/backend/layer_spec.hpp"

#include "support/layer_examples.hpp"

#include <cctype>
#include <ostream>
#include <string>
#include <vector>

namespace tutti::testing_support {

// Layer `layer` adds activation `activation`: 0 is the network's input, i the output of layer i - 1.
struct ResidualCase {
  std::size_t layer;
  std::size_t activation;
};

struct NetworkCase {
  std::string name;  // letters and digits only
  std::int64_t batch;
  Shape sample;
  std::vector<LayerSpec> layers;
  std::vector<ResidualCase> residuals{};
  // Biases and shifts so far from 0 that coarse rounding changes the sign of no ReLU's input.
  bool clear_of_kinks = false;
};

inline std::ostream& operator<<(std::ostream& out, const NetworkCase& network) { return out << network.name; }

inline constexpr bool kBias = true;
inline constexpr bool kNoBias = false;
inline constexpr bool kRelu = true;
inline constexpr bool kNoRelu = false;

// 3x3 windows over full blocks of channels.
inline std::vector<NetworkCase> tiled_convolution_cases() {
  return {
      {"ConvByTilesOfOneImage", 1, {32, 14, 14}, {Conv2dSpec{64, 3, 1, 1, kBias, kRelu}}},
      {"ConvByTilesOverOddImages", 8, {64, 13, 12}, {Conv2dSpec{96, 3, 1, 0, kNoBias, kNoRelu}}},
      {"ConvByTilesFullyPadded", 2, {64, 6, 5}, {Conv2dSpec{32, 3, 1, 2, kBias, kNoRelu}}},
      {"ConvByTilesOfManyImages", 9, {32, 18, 17}, {Conv2dSpec{32, 3, 1, 1, kNoBias, kRelu}}},
      {"ConvByTilesOfManyChannels", 5, {160, 7, 6}, {Conv2dSpec{128, 3, 1, 1, kBias, kRelu}}},
      {"ConvByNarrowTiles", 7, {128, 9, 10}, {Conv2dSpec{128, 3, 1, 1, kNoBias, kNoRelu}}},
      {"ConvByPatches", 11, {20, 13, 13}, {Conv2dSpec{50, 5, 1, 0, kBias, kRelu}}},
      {"ConvByPatchesOverOddImages", 3, {32, 12, 10}, {Conv2dSpec{64, 5, 1, 2, kNoBias, kNoRelu}}},
      {"ConvByPatchesBeyondTheImage", 2, {27, 7, 6}, {Conv2dSpec{60, 5, 1, 3, kBias, kNoRelu}}},
  };
}

// Windows of a few values, for which there is a special kernel without a gradient of the input.
inline std::vector<NetworkCase> few_channel_convolution_cases() {
  return {
      {"ConvOfGrayImages", 5, {1, 28, 27}, {Conv2dSpec{20, 3, 1, 0, kBias, kRelu}}},
      {"ConvOfPaddedColors", 3, {3, 16, 14}, {Conv2dSpec{40, 3, 1, 1, kBias, kRelu}}},
      {"ConvOfStridedGrayImages", 2, {1, 17, 19}, {Conv2dSpec{70, 5, 2, 2, kNoBias, kRelu}}},
      {"ConvOfFiveOneByOne", 4, {5, 9, 8}, {Conv2dSpec{12, 1, 1, 0, kBias, kNoRelu}}},
  };
}

inline std::vector<NetworkCase> convolution_cases() {
  return {
      {"ConvFirstOfLenet", 3, {1, 28, 28}, {Conv2dSpec{20, 3, 1, 0, kBias, kRelu}}},
      {"ConvFirstOfLenetWithoutBiasOrRelu", 3, {1, 28, 28}, {Conv2dSpec{20, 3, 1, 0, kNoBias, kNoRelu}}},
      {"ConvSecondOfLenet", 3, {20, 13, 13}, {Conv2dSpec{50, 5, 1, 0, kBias, kRelu}}},
      {"ConvSecondOfLenetInABatchOf16", 16, {20, 9, 9}, {Conv2dSpec{50, 5, 1, 0, kBias, kNoRelu}}},
      {"ConvFrom50To20Padded", 1, {50, 9, 9}, {Conv2dSpec{20, 3, 1, 1, kNoBias, kRelu}}},
      {"ConvOfColorImages", 3, {3, 17, 15}, {Conv2dSpec{64, 3, 1, 1, kBias, kRelu}}},
      {"ConvOfFullBlocks", 3, {64, 8, 8}, {Conv2dSpec{64, 3, 1, 1, kNoBias, kRelu}}},
      {"ConvOfFullBlocksInABatchOf12", 12, {64, 8, 8}, {Conv2dSpec{64, 3, 1, 1, kBias, kRelu}}},
      {"ConvStridedOverOddImages", 3, {16, 15, 17}, {Conv2dSpec{32, 3, 2, 1, kBias, kNoRelu}}},
      {"ConvStridedWithRemainder", 1, {3, 11, 12}, {Conv2dSpec{5, 4, 3, 0, kBias, kRelu}}},
      {"ConvStridedOneByOne", 16, {16, 9, 9}, {Conv2dSpec{32, 1, 2, 0, kNoBias, kNoRelu}}},
      {"ConvOneByOneOf50", 3, {50, 5, 5}, {Conv2dSpec{20, 1, 1, 0, kBias, kRelu}}},
      {"ConvWithKernelOfTheImage", 3, {5, 7, 7}, {Conv2dSpec{3, 7, 1, 0, kBias, kRelu}}},
      {"ConvOfOneChannelToOne", 1, {1, 5, 5}, {Conv2dSpec{1, 2, 1, 0, kBias, kNoRelu}}},
      {"ConvOfOnePixel", 3, {3, 1, 1}, {Conv2dSpec{20, 1, 1, 0, kBias, kNoRelu}}},
      {"ConvLargelyPadded", 3, {6, 5, 4}, {Conv2dSpec{16, 5, 1, 4, kBias, kRelu}}},
      {"ConvOfSixChannelsInABatchOf64", 64, {6, 10, 10}, {Conv2dSpec{16, 5, 1, 0, kBias, kRelu}}},
      {"ConvFrom5To7", 1, {5, 9, 9}, {Conv2dSpec{7, 3, 1, 1, kBias, kRelu}}},
      {"ConvStemOfResnet", 1, {3, 33, 35}, {Conv2dSpec{8, 7, 2, 3, kNoBias, kNoRelu}}},
  };
}

// On GPUs, channels fill whole packs except in depthwise convolutions.
inline std::vector<NetworkCase> grouped_convolution_cases() {
  return {
      {"ConvDepthwise", 3, {32, 9, 8}, {Conv2dSpec{32, 3, 1, 1, kNoBias, kNoRelu, 32}}},
      {"ConvDepthwiseStridedOf20", 2, {20, 9, 7}, {Conv2dSpec{20, 3, 2, 1, kBias, kRelu, 20}}},
      {"ConvDepthwiseOfLargeWindows", 2, {48, 8, 9}, {Conv2dSpec{48, 7, 1, 3, kBias, kNoRelu, 48}}},
      {"ConvOfTwoOutputsPerChannel", 2, {16, 6, 5}, {Conv2dSpec{32, 3, 1, 1, kNoBias, kNoRelu, 16}}},
      {"ConvOfGroupsOfFour", 3, {32, 7, 6}, {Conv2dSpec{64, 3, 1, 1, kBias, kRelu, 8}}},
      {"ConvOfGroupsOf16", 2, {48, 9, 7}, {Conv2dSpec{96, 3, 2, 1, kBias, kRelu, 3}}},
      {"ConvOfGroupsOf32", 3, {64, 8, 9}, {Conv2dSpec{64, 3, 1, 1, kBias, kNoRelu, 2}}},
      {"ConvDilated", 3, {16, 9, 11}, {Conv2dSpec{24, 3, 1, 2, kBias, kNoRelu, 1, 2}}},
      {"ConvDilatedInGroups", 2, {16, 11, 9}, {Conv2dSpec{16, 3, 2, 1, kNoBias, kRelu, 2, 3}}},
  };
}

// Single layers.
inline std::vector<NetworkCase> pool_and_linear_cases() {
  return {
      {"MaxPoolOfLenet", 3, {20, 26, 26}, {Pool2dSpec{Pooling::max, 2, 2}}},
      {"MaxPoolWithRemainder", 16, {50, 9, 9}, {Pool2dSpec{Pooling::max, 2, 2}}},
      {"MaxPoolOverlapping", 1, {1, 5, 7}, {Pool2dSpec{Pooling::max, 3, 1}}},
      {"MaxPoolOfTheImage", 3, {3, 7, 7}, {Pool2dSpec{Pooling::max, 7, 1}}},
      {"MaxPoolWithGaps", 3, {16, 15, 13}, {Pool2dSpec{Pooling::max, 2, 3}}},
      {"AveragePoolOfLenet", 3, {20, 26, 26}, {Pool2dSpec{Pooling::average, 2, 2}}},
      {"AveragePoolWithRemainder", 64, {3, 9, 10}, {Pool2dSpec{Pooling::average, 2, 2}}},
      {"AveragePoolOverlapping", 1, {64, 7, 8}, {Pool2dSpec{Pooling::average, 3, 2}}},
      {"AveragePoolOfTheImage", 3, {50, 4, 4}, {Pool2dSpec{Pooling::average, 4, 4}}},
      {"MaxPoolOfResnetStem", 3, {20, 15, 16}, {Pool2dSpec{Pooling::max, 3, 2, 1}}},
      {"AveragePoolPadded", 2, {16, 7, 6}, {Pool2dSpec{Pooling::average, 3, 1, 1}}},
      {"LinearToTenClasses", 64, {128}, {LinearSpec{10, kBias, kNoRelu}}},
      {"LinearOfOneToOne", 1, {1}, {LinearSpec{1, kBias, kNoRelu}}},
      {"LinearToOneUnit", 3, {33}, {LinearSpec{1, kNoBias, kRelu}}},
      {"LinearOverImages", 16, {50, 4, 4}, {LinearSpec{128, kBias, kRelu}}},
      {"LinearOverColorImagesToOneUnit", 3, {3, 5, 7}, {LinearSpec{1, kBias, kNoRelu}}},
      {"LinearOverOnePixel", 1, {20, 1, 1}, {LinearSpec{7, kNoBias, kNoRelu}}},
  };
}

// Layers over images that the CPU computes by loops of its own.
inline std::vector<NetworkCase> own_image_cases() {
  std::vector<NetworkCase> all = tiled_convolution_cases();
  for (const auto& cases : {few_channel_convolution_cases(), convolution_cases(), pool_and_linear_cases()})
    all.insert(all.end(), cases.begin(), cases.end());
  std::erase_if(all, [](const NetworkCase& network) { return network.sample.extents().size() != 3; });
  return all;
}

inline NetworkCase lenet_like(std::string name, std::int64_t batch, std::int64_t extent) {
  return {std::move(name),
          batch,
          {1, extent, extent},
          {Conv2dSpec{20, 3, 1, 0, kBias, kRelu}, Pool2dSpec{Pooling::max, 2, 2}, Conv2dSpec{50, 5, 1, 0, kBias, kRelu},
           Pool2dSpec{Pooling::max, 2, 2}, LinearSpec{32, kBias, kRelu}, LinearSpec{10, kBias, kNoRelu}}};
}

inline std::vector<NetworkCase> chain_cases() {
  return {
      lenet_like("LenetOfOneSample", 1, 28),
      lenet_like("LenetOfThreeSamples", 3, 28),
      lenet_like("LenetOf16Samples", 16, 18),
      lenet_like("LenetOf64Samples", 64, 15),
      {"Conv50ThenLinear", 3, {20, 8, 8}, {Conv2dSpec{50, 5, 1, 0, kBias, kRelu}, LinearSpec{10, kBias, kNoRelu}}},
      {"Conv50ThenPoolThenLinearToOneUnit",
       16,
       {16, 8, 8},
       {Conv2dSpec{50, 3, 1, 0, kBias, kNoRelu}, Pool2dSpec{Pooling::max, 2, 2}, LinearSpec{1, kBias, kNoRelu}}},
      {"FullBlocksThenOddOnes",
       3,
       {3, 12, 12},
       {Conv2dSpec{32, 3, 1, 1, kBias, kRelu}, Conv2dSpec{20, 3, 2, 1, kNoBias, kRelu},
        Conv2dSpec{48, 3, 1, 1, kBias, kNoRelu}, Pool2dSpec{Pooling::average, 2, 2}, LinearSpec{5, kBias, kRelu}}},
      {"PoolOnTheImageThenConvs",
       3,
       {3, 16, 14},
       {Pool2dSpec{Pooling::average, 2, 2}, Conv2dSpec{20, 3, 1, 0, kBias, kRelu},
        Conv2dSpec{50, 3, 2, 1, kBias, kRelu}, LinearSpec{1, kNoBias, kNoRelu}}},
      {"NarrowConvs",
       3,
       {1, 14, 14},
       {Conv2dSpec{6, 5, 1, 2, kBias, kRelu}, Pool2dSpec{Pooling::max, 2, 2}, Conv2dSpec{16, 5, 1, 0, kBias, kRelu},
        LinearSpec{12, kBias, kRelu}, LinearSpec{4, kBias, kNoRelu}}},
  };
}

inline constexpr bool kAdd = true;
inline constexpr bool kNoAdd = false;

// A stem, a block with the plain and one with a convolved residual, and the end of a network.
inline NetworkCase resnet_like(std::string name, std::int64_t batch, std::int64_t extent, std::int64_t channels) {
  // There are no biases: their gradients, before a norm, are zeros with nothing but rounding errors in them.
  const Conv2dSpec same{channels, 3, 1, 1, kNoBias, kNoRelu};
  const Conv2dSpec wider{2 * channels, 3, 2, 1, kNoBias, kNoRelu};
  const Conv2dSpec after{2 * channels, 3, 1, 1, kNoBias, kNoRelu};
  return {std::move(name),
          batch,
          {3, extent, extent},
          {same, BatchNormSpec{kNoAdd, kRelu}, same, BatchNormSpec{kAdd, kRelu}, wider, BatchNormSpec{kNoAdd, kRelu},
           after, BatchNormSpec{kNoAdd, kNoRelu}, AddSpec{kRelu}, GlobalAveragePoolSpec{}, DropoutSpec{0.3},
           LinearSpec{5, kBias, kNoRelu}},
          {{3, 2}, {8, 6}}};
}

// Norms and dropout with the layers that they stand beside, up to whole residual networks.
inline std::vector<NetworkCase> norm_and_dropout_cases() {
  return {
      {"NormOfTheImage", 3, {3, 9, 7}, {BatchNormSpec{kNoAdd, kRelu}}},
      {"NormAfterConvOf20", 4, {3, 9, 7}, {Conv2dSpec{20, 3, 1, 1, kNoBias, kNoRelu}, BatchNormSpec{kNoAdd, kRelu}}},
      {"NormOfGreatEpsilon", 3, {20, 4, 5}, {BatchNormSpec{kNoAdd, kNoRelu, 0.5, 0.25}}},
      {"NormAfterConvOf50", 2, {16, 6, 6}, {Conv2dSpec{50, 3, 1, 0, kBias, kRelu}, BatchNormSpec{kNoAdd, kNoRelu}}},
      {"NormAfterConvOfFullBlocks", 3, {32, 5, 5}, {Conv2dSpec{64, 3, 1, 1, kNoBias}, BatchNormSpec{kNoAdd, kRelu}}},
      {"DropoutBetweenLinears", 5, {33}, {LinearSpec{30, kBias, kRelu}, DropoutSpec{0.5}, LinearSpec{4, kBias}}},
      {"AverageAndDropoutAfterConv",
       2,
       {3, 6, 5},
       {Conv2dSpec{20, 3, 1, 0, kBias, kRelu}, DropoutSpec{0.25}, GlobalAveragePoolSpec{}, LinearSpec{3, kBias}}},
      resnet_like("ResnetOf20Channels", 3, 9, 20),
      resnet_like("ResnetOf32Channels", 2, 8, 32),
      resnet_like("ResnetOfOneSample", 1, 6, 3),
  };
}

// "Gelu"
inline std::string title_of(const ElementwiseSpec& spec) {
  std::string title(name_of(spec.function));
  title.front() = static_cast<char>(std::toupper(title.front()));
  return title;
}

// Every function of an image and of values without extent.
inline std::vector<NetworkCase> function_cases() {
  std::vector<NetworkCase> cases;
  for (const ElementwiseSpec& spec : function_examples()) {
    cases.push_back({title_of(spec), 3, {5, 7, 7}, {spec, Conv2dSpec{3, 7, 1, 0, kBias, kRelu}, spec}});
  }
  return cases;
}

inline std::vector<NetworkCase> all_cases() {
  std::vector<NetworkCase> all = convolution_cases();
  for (const auto& cases : {tiled_convolution_cases(), few_channel_convolution_cases(), grouped_convolution_cases(),
                            pool_and_linear_cases(), chain_cases(), norm_and_dropout_cases(), function_cases()})
    all.insert(all.end(), cases.begin(), cases.end());
  return all;
}

// Small enough for finite differences.
inline std::vector<NetworkCase> small_cases() {
  return {
      {"Conv", 2, {3, 7, 6}, {Conv2dSpec{5, 3, 1, 1, kBias, kNoRelu}}},
      {"ConvWithRelu", 2, {3, 7, 6}, {Conv2dSpec{20, 3, 2, 1, kBias, kRelu}}},
      {"MaxPool", 2, {3, 7, 6}, {Pool2dSpec{Pooling::max, 2, 2}}},
      {"AveragePool", 2, {3, 7, 6}, {Pool2dSpec{Pooling::average, 3, 2}}},
      {"Linear", 3, {11}, {LinearSpec{5, kBias, kNoRelu}}},
      {"LinearWithRelu", 3, {2, 3, 4}, {LinearSpec{7, kBias, kRelu}}},
      {"Conv50ThenLinear", 2, {2, 5, 5}, {Conv2dSpec{50, 3, 1, 0, kBias, kRelu}, LinearSpec{3, kBias, kNoRelu}}},
      {"SmallLenet",
       2,
       {1, 13, 13},
       {Conv2dSpec{5, 3, 1, 0, kBias, kRelu}, Pool2dSpec{Pooling::max, 2, 2}, Conv2dSpec{7, 2, 1, 0, kBias, kRelu},
        Pool2dSpec{Pooling::average, 2, 2}, LinearSpec{6, kBias, kRelu}, LinearSpec{3, kBias, kNoRelu}}},
      {"Functions",
       2,
       {3, 4, 5},
       [] {
         const auto smooth = smooth_function_examples();
         return std::vector<LayerSpec>(smooth.begin(), smooth.end());
       }()},
      {"Norm", 3, {3, 4, 5}, {BatchNormSpec{kNoAdd, kNoRelu}}},
      {"NormWithReluAfterConv",
       3,
       {2, 5, 4},
       {Conv2dSpec{20, 3, 1, 1, kNoBias, kNoRelu}, BatchNormSpec{kNoAdd, kRelu}}},
      {"NormThatAddsTheImage", 2, {3, 4, 5}, {BatchNormSpec{kAdd, kRelu}}, {{0, 0}}},
      {"AddOfTheImage", 2, {3, 4, 5}, {Conv2dSpec{3, 3, 1, 1, kBias, kNoRelu}, AddSpec{kRelu}}, {{1, 0}}},
      {"ResidualBlock",
       3,
       {6, 6, 5},
       {Conv2dSpec{6, 3, 1, 1, kNoBias, kNoRelu}, BatchNormSpec{kNoAdd, kRelu},
        Conv2dSpec{6, 3, 1, 1, kNoBias, kNoRelu}, BatchNormSpec{kAdd, kRelu}},
       {{3, 0}}},
      resnet_like("SmallResnet", 3, 5, 3),
  };
}

// Cases for coarse rounding.
inline std::vector<NetworkCase> cleared_small_cases() {
  std::vector<NetworkCase> cases = small_cases();
  // Its pooled gradient is the same for all pixels, and of such a gradient a norm leaves little but rounding errors.
  std::erase_if(cases, [](const NetworkCase& network) { return network.name == "SmallResnet"; });
  for (NetworkCase& network : cases) network.clear_of_kinks = true;
  return cases;
}

}  // namespace tutti::testing_support
