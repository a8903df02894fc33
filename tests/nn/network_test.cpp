#include "tutti/nn/network.hpp"

#include "tutti/nn/model_file.hpp"

#include "support/thrown.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace tutti {
namespace {

const Shape kImageShape{1, 28, 28};

TEST(Network, LaysItsParametersOutLastLayerFirst) {
  const Network network(built_in_model("lenet"), kImageShape, 10);
  const auto& slices = network.layout().slices();
  ASSERT_EQ(slices.size(), 8u);
  EXPECT_EQ(slices.front().name, "dense2/weight");
  EXPECT_EQ(slices[1].name, "dense2/bias");
  EXPECT_EQ(slices.back().name, "conv1/bias");
  EXPECT_EQ(slices.front().offset, 0);
  for (std::size_t i = 0; i + 1 < slices.size(); ++i) {
    EXPECT_EQ(slices[i + 1].offset % 16, 0);
    EXPECT_GE(slices[i + 1].offset, slices[i].offset + slices[i].elements());
  }
}

TEST(Network, RefusesAnEndThatIsNotOneValuePerClass) {
  NetworkSpec spec = built_in_model("linear");
  std::get<LinearSpec>(spec.layers.back().spec).units = 7;
  EXPECT_THROW(Network(spec, kImageShape, 10), Error);
}

std::string refusal(const NetworkSpec& spec, const Shape& sample) {
  const Error error = thrown_by([&] { Network(spec, sample, 10); });
  EXPECT_EQ(error.source(), ErrorSource::input);
  return error.what();
}

NetworkSpec network_of(std::vector<LayerNode> layers) {
  layers.push_back({"head", LinearSpec{.units = kUnitsFromClasses}});
  return {"net", Initializer::xavier, std::move(layers)};
}

const LayerSpec kConvolution = Conv2dSpec{.channels = 4, .kernel = 3, .padding = 1};

TEST(Network, HasBackwardPassesFromTheFirstLayerThatIsTrained) {
  const Network network(built_in_model("lenet"), kImageShape, 10, {"conv*", "dense*2"});
  std::map<std::string, bool> backward;
  for (const NetworkLayer& layer : network.layers()) backward[layer.name] = layer.has_backward;
  EXPECT_EQ(
      backward,
      (std::map<std::string, bool>{
          {"conv1", false}, {"pool1", false}, {"conv2", false}, {"pool2", false}, {"dense1", true}, {"dense2", true}}));
  for (const ParameterSlice& slice : network.layout().slices()) {
    EXPECT_EQ(slice.frozen, !slice.name.starts_with("dense1")) << slice.name;
  }
}

// A batch norm computes statistics in its backward pass, also if none of its parameters are trained.
TEST(Network, HasBackwardPassesFromTheFirstLayerOfTheModelFileThatChanges) {
  NetworkSpec spec = network_of({{"a", kConvolution}, {"b", kConvolution}, {"norm", BatchNormSpec{}}});
  spec.layers[0].frozen = {ParameterKind::weight, ParameterKind::bias};
  spec.layers[1].frozen = {ParameterKind::weight};
  spec.layers[2].frozen = {ParameterKind::scale, ParameterKind::shift};
  const auto first = [&](const std::vector<std::string>& frozen) {
    const Network network(spec, kImageShape, 10, frozen);
    return std::ranges::find(network.layers(), true, &NetworkLayer::has_backward)->name;
  };
  EXPECT_EQ(first({}), "b");
  spec.layers[1].frozen.push_back(ParameterKind::bias);
  EXPECT_EQ(first({}), "norm");
  EXPECT_EQ(first({"norm"}), "head");
}

TEST(Network, RefusesToFreezeNoLayerOrAll) {
  const auto freeze = [](const std::string& pattern) {
    return std::string(thrown_by([&] { Network(built_in_model("lenet"), kImageShape, 10, {pattern}); }).what());
  };
  EXPECT_EQ(freeze("conv3"), "--freeze conv3: the network lenet has no such layer; it has conv1, for example");
  EXPECT_EQ(freeze("*"), "all layers of lenet are frozen: leave one to train");
  NetworkSpec spec = network_of({{"norm", BatchNormSpec{}}});
  spec.layers.front().frozen = {ParameterKind::mean};
  EXPECT_EQ(refusal(spec, kImageShape), "layer norm: it has no mean that could be frozen");
}

TEST(Network, NamesTheLayerThatDoesNotFitAndTheLeastSize) {
  EXPECT_EQ(refusal(built_in_model("vgg11"), Shape{1, 28, 28}),
            "layer stage5.pool of the network vgg11 does not fit images of 1x28x28: max-pool2d: its window of 2x2 is "
            "larger than the image of 512x1x1; use a smaller kernel or fewer layers that shrink the image; the least "
            "size is 32x32");
  const std::string lenet = refusal(built_in_model("lenet"), Shape{1, 8, 8});
  EXPECT_TRUE(lenet.starts_with("layer conv2 of the network lenet does not fit images of 1x8x8: ")) << lenet;
  EXPECT_TRUE(lenet.ends_with("the least size is 14x14")) << lenet;
  EXPECT_NO_THROW(Network(built_in_model("vgg11"), Shape{1, 32, 32}, 10));
  EXPECT_NO_THROW(Network(built_in_model("lenet"), Shape{1, 14, 14}, 10));
}

TEST(Network, NamesNoLeastSizeWhereThereIsNone) {
  const std::string text =
      refusal(network_of({{"conv", Conv2dSpec{.channels = 4, .kernel = 3, .padding = 3}}}), kImageShape);
  EXPECT_EQ(text.find("least size"), std::string::npos) << text;
}

TEST(Network, RefusesMoreParametersThanCanBeCounted) {
  std::vector<LayerNode> layers;
  for (int i = 0; i < 12; ++i) layers.push_back({fmt::format("wide{}", i), LinearSpec{.units = std::int64_t{1} << 30}});
  const std::string text = refusal(network_of(layers), kImageShape);
  EXPECT_TRUE(text.starts_with("the network has more than 72057594037927936 parameters, wide11/weight")) << text;
}

TEST(Network, ReadsAnyEarlierLayerOrTheImage) {
  const Network network(network_of({{"a", kConvolution},
                                    {"b", kConvolution, "image"},
                                    {"sum", AddSpec{}, "", "a"},
                                    {"norm", BatchNormSpec{.add = true}, "sum", "b"}}),
                        kImageShape, 10);
  const auto& layers = network.layers();
  EXPECT_EQ(layers[0].from, kImage);
  EXPECT_EQ(layers[1].from, kImage);
  EXPECT_EQ(layers[2].from, 1);
  EXPECT_EQ(layers[2].residual_from, 0);
  EXPECT_EQ(layers[3].from, 2);
  EXPECT_EQ(layers[3].residual_from, 1);
  EXPECT_EQ(layers[4].from, 3);
  EXPECT_EQ(layers[1].input, kImageShape);
}

TEST(Network, ReportsWrongConnections) {
  const auto words = [](std::vector<LayerNode> layers) { return refusal(network_of(std::move(layers)), kImageShape); };
  EXPECT_EQ(words({{"a", kConvolution, "c"}}),
            "layer a of the network net: it reads 'c', but no layer before it has this name");
  EXPECT_EQ(words({{"a", kConvolution}, {"b", AddSpec{}, "", "head"}}),
            "layer b of the network net: it reads 'head', but no layer before it has this name");
  EXPECT_EQ(words({{"a", AddSpec{}}}), "layer a of the network net: it adds a residual, but none is named");
  EXPECT_EQ(words({{"a", kConvolution}, {"b", kConvolution, "", "a"}}),
            "layer b of the network net: it has a residual, but this conv2d adds none");
  EXPECT_EQ(words({{"a", kConvolution}, {"b", kConvolution, "image"}}),
            "layer a of the network net: nothing reads its output; let a later layer take it as input or residual");
  EXPECT_EQ(words({{"a", kConvolution}, {"a", kConvolution}}), "layer a of the network net: two layers have this name");
  EXPECT_EQ(words({{"image", kConvolution}}), "layer image of the network net: this is the name of the image itself");
  EXPECT_EQ(
      words({{"a", kConvolution}, {"b", AddSpec{}, "", "image"}}),
      "layer b of the network net does not fit images of 1x28x28: its residual is 1x28x28, but what this is added "
      "to is 4x28x28");
}

TEST(Network, LaysItsStatisticsOutAsTheTail) {
  const Network network(network_of({{"n1", BatchNormSpec{}}, {"n2", BatchNormSpec{}}}), Shape{3, 8, 8}, 10);
  std::vector<std::string> names;
  for (const ParameterSlice& slice : network.layout().slices()) names.push_back(slice.name);
  EXPECT_EQ(names, (std::vector<std::string>{"head/weight", "head/bias", "n2/scale", "n2/shift", "n1/scale", "n1/shift",
                                             "n2/mean", "n2/variance", "n1/mean", "n1/variance"}));
  EXPECT_EQ(network.layers()[1].parameters, (std::vector<int>{2, 3, 6, 7}));
  EXPECT_EQ(network.layout().statistics().size(), 4u);
  EXPECT_EQ(network.layout().parameters(), 192 * 10 + 10 + 4 * 3);
}

// The number of parameters of a convolution of `kernel` without bias, or of a norm's scale and shift.
std::int64_t convolution(std::int64_t in, std::int64_t out, std::int64_t kernel) { return in * out * kernel * kernel; }
std::int64_t norm(std::int64_t channels) { return 2 * channels; }

// Stages of basic blocks, as the tutorials' residual networks have them.
std::int64_t basic_network(std::int64_t image_channels, const std::vector<int>& blocks) {
  std::int64_t sum = convolution(image_channels, 64, 3) + norm(64);
  std::int64_t in = 64;
  std::int64_t out = 64;
  for (const int count : blocks) {
    if (in != out) sum += convolution(in, out, 1);
    sum += convolution(in, out, 3) + (2 * count - 1) * convolution(out, out, 3) + 2 * count * norm(out);
    in = out;
    out *= 2;
  }
  return sum + 512 * 10 + 10;
}

struct Size {
  const char* name;
  Shape image;
  int classes;
  std::int64_t parameters;
};

TEST(Network, BuiltInHasTheParametersOfItsOriginal) {
  const std::vector<Size> sizes{
      {"lenet", {1, 28, 28}, 10, 129'068},
      {"resnet18", {1, 28, 28}, 10, 11'171'018},
      {"resnet18", {3, 32, 32}, 10, 11'172'170},
      {"resnet34", {1, 28, 28}, 10, basic_network(1, {3, 4, 6, 3})},
      {"resnet34", {3, 32, 32}, 10, basic_network(3, {3, 4, 6, 3})},
      {"resnet18-imagenet", {3, 224, 224}, 1000, 11'689'512},
      {"resnet34-imagenet", {3, 224, 224}, 1000, 21'797'672},
      {"resnet50", {3, 224, 224}, 1000, 25'557'032},
      {"vgg11", {1, 224, 224}, 10, 128'806'154},
      {"vgg11", {3, 224, 224}, 1000, 132'863'336},
  };
  EXPECT_EQ(basic_network(1, {2, 2, 2, 2}), 11'171'018);
  for (const Size& size : sizes) {
    const Network network(built_in_model(size.name), size.image, size.classes);
    EXPECT_EQ(network.layout().parameters(), size.parameters) << size.name;
  }
}

TEST(Network, Resnet18KeepsSmallImagesLargeAndHalvesThemThrice) {
  const Network network(built_in_model("resnet18"), kImageShape, 10);
  std::map<std::string, Shape> outputs;
  for (const NetworkLayer& layer : network.layers()) outputs[layer.name] = layer.output;
  EXPECT_EQ(outputs.at("stem.norm"), (Shape{64, 28, 28}));
  EXPECT_EQ(outputs.at("stage1.block2.norm2"), (Shape{64, 28, 28}));
  EXPECT_EQ(outputs.at("stage2.block1.shortcut"), (Shape{128, 14, 14}));
  EXPECT_EQ(outputs.at("stage4.block2.norm2"), (Shape{512, 4, 4}));
  EXPECT_EQ(outputs.at("pool"), (Shape{512, 1, 1}));
  EXPECT_EQ(outputs.contains("stage1.block1.shortcut"), false);
}

TEST(Network, Resnet50StridesInTheMiddleOfItsBottlenecks) {
  const Network network(built_in_model("resnet50"), Shape{3, 224, 224}, 1000);
  std::map<std::string, Shape> outputs;
  for (const NetworkLayer& layer : network.layers()) outputs[layer.name] = layer.output;
  EXPECT_EQ(outputs.at("stem.pool"), (Shape{64, 56, 56}));
  EXPECT_EQ(outputs.at("stage1.block1.shortcut_norm"), (Shape{256, 56, 56}));
  EXPECT_EQ(outputs.at("stage2.block1.conv1"), (Shape{128, 56, 56}));
  EXPECT_EQ(outputs.at("stage2.block1.conv2"), (Shape{128, 28, 28}));
  EXPECT_EQ(outputs.at("stage4.block3.norm3"), (Shape{2048, 7, 7}));
}

}  // namespace
}  // namespace tutti
