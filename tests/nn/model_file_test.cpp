#include "tutti/nn/model_file.hpp"

#include "tutti/base/error.hpp"
#include "tutti/nn/network.hpp"

#include "nn/fake_backend.hpp"
#include "support/layer_examples.hpp"
#include "support/overwrite.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace tutti {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_model(text, "net.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.source(), ErrorSource::input);
    return error.what();
  }
  return "no error";
}

TEST(ModelFile, ReproducesEveryBuiltInNetwork) {
  for (const std::string& name : built_in_model_names()) {
    const NetworkSpec network = built_in_model(name);
    EXPECT_EQ(parse_model(model_text(network), "text"), network) << model_text(network);
  }
}

TEST(ModelFile, HasDefaults) {
  const NetworkSpec network = parse_model(R"(
name = "small"
[[layer]]
name = "c"
type = "conv2d"
channels = 4
kernel = 3
[[layer]]
name = "p"
type = "average-pool2d"
kernel = 3
[[layer]]
name = "d"
type = "linear"
units = "classes"
bias = false
)",
                                          "net.toml");
  EXPECT_EQ(network.initializer, Initializer::xavier);
  EXPECT_EQ(network.layers[0].spec, LayerSpec(Conv2dSpec{.channels = 4, .kernel = 3}));
  EXPECT_EQ(network.layers[1].spec, LayerSpec(Pool2dSpec{.pooling = Pooling::average, .kernel = 3, .stride = 3}));
  EXPECT_EQ(network.layers[2].spec, LayerSpec(LinearSpec{.units = kUnitsFromClasses, .bias = false}));
}

TEST(ModelFile, NamesTheLineAndKeyOfAMistake) {
  const std::string head = "name = \"x\"\n\n[[layer]]\nname = \"a\"\n";
  EXPECT_EQ(refusal(head + "type = \"linear\"\nunits = 3\nrely = true\n"),
            "net.toml:7: layer 1 has no key 'rely'; it takes bias, frozen, init, input, name, relu, type, units");
  EXPECT_EQ(refusal(head + "type = \"lineal\"\nunits = 3\n"),
            "net.toml:5: 'lineal' is no layer type: conv2d, max-pool2d, average-pool2d, linear, batch-norm, add, "
            "global-average-pool, dropout, " +
                fmt::format("{}", fmt::join(enum_names(Function{}), ", ")));
  EXPECT_EQ(refusal(head + "type = \"linear\"\nunits = 0\n"),
            "net.toml:6: 'units' must be a whole number above 0, or \"classes\"");
  EXPECT_EQ(refusal(head + "type = \"conv2d\"\nkernel = 3\n"), "net.toml:3: layer 1 lacks the key 'channels'");
  EXPECT_EQ(refusal(head + "type = \"conv2d\"\nkernel = \"3\"\nchannels = 2\n"),
            "net.toml:6: 'kernel' must be a whole number of 1 or more");
  EXPECT_EQ(refusal(head + "type = \"conv2d\"\nkernel = 3\nchannels = 0\n"),
            "net.toml:7: 'channels' must be a whole number of 1 or more");
  EXPECT_EQ(refusal("init = \"zeros\"\nname = \"x\"\n"),
            "net.toml:1: 'zeros' is no initializer: it is one of normal, xavier, kaiming, uniform");
  EXPECT_EQ(
      refusal(head + "type = \"linear\"\nunits = 1\ninit = \"ones\"\n"),
      "net.toml:7: 'ones' is no initializer: it is one of normal, xavier, kaiming, uniform, dirac, zero, whitening");
  EXPECT_EQ(refusal(head + "type = \"linear\"\nunits = 1\nfrozen = [\"weights\"]\n"),
            "net.toml:7: 'weights' is no kind of parameters: it is one of weight, bias, scale, shift, mean, variance");
  EXPECT_EQ(refusal("name = \"x\"\nlayer = 3\n"),
            "net.toml:2: layer is a list, with {name = ..., type = ...} for each layer");
}

TEST(ModelFile, ConnectsLayersByName) {
  const NetworkSpec network = parse_model(R"(
name = "small"
[[layer]]
name = "a"
type = "batch-norm"
relu = true
[[layer]]
name = "b"
type = "batch-norm"
input = "image"
add = true
residual = "a"
[[layer]]
name = "c"
type = "add"
residual = "image"
[[layer]]
name = "d"
type = "dropout"
rate = 0.25
[[layer]]
name = "e"
type = "max-pool2d"
kernel = 3
stride = 2
padding = 1
[[layer]]
name = "f"
type = "global-average-pool"
)",
                                          "net.toml");
  const std::vector<LayerNode> expected{
      {"a", BatchNormSpec{.relu = true}},
      {"b", BatchNormSpec{.add = true}, "image", "a"},
      {"c", AddSpec{}, "", "image"},
      {"d", DropoutSpec{.rate = 0.25}},
      {"e", Pool2dSpec{.pooling = Pooling::max, .kernel = 3, .stride = 2, .padding = 1}},
      {"f", GlobalAveragePoolSpec{}}};
  EXPECT_EQ(network.layers, expected);
  EXPECT_EQ(parse_model(model_text(network), "text"), network) << model_text(network);
}

TEST(ModelFile, ReadsBackEveryKeyOfEveryLayer) {
  for (const LayerSpec& spec : testing_support::layer_examples()) {
    NetworkSpec network{.name = "one", .layers = {{"a", spec}}};
    network.layers.front().initializer = LayerInitializer::dirac;
    network.layers.front().frozen = {ParameterKind::weight, ParameterKind::bias};
    if (takes_residual(spec)) network.layers.front().residual = kImageName;
    EXPECT_EQ(parse_model(model_text(network), "text"), network) << model_text(network);
  }
}

TEST(ModelFile, ReadsBackItsTextWhateverTheNetworkIsCalled) {
  NetworkSpec network = built_in_model("linear");
  const std::string longer(79, 'a');
  for (const std::string& name :
       {std::string("a \"b\" c"), std::string("back\\slash"), std::string("two\nlines and a\ttab"), std::string(),
        std::string("ä"), longer + " with a space", longer + "ä"}) {
    network.name = name;
    EXPECT_EQ(parse_model(model_text(network), "text"), network) << model_text(network);
  }
}

TEST(ModelFile, NamesTheLineOfAWrongConnection) {
  const std::string head = "name = \"x\"\n[[layer]]\nname = \"a\"\ntype = \"conv2d\"\nchannels = 2\nkernel = 1\n";
  const std::string next = head + "[[layer]]\nname = \"b\"\n";
  EXPECT_EQ(refusal(head + "input = \"b\"\n"), "net.toml:7: 'input': no layer before this one is called 'b'");
  EXPECT_EQ(refusal(head + "input = \"a\"\n"), "net.toml:7: 'input': no layer before this one is called 'a'");
  EXPECT_EQ(refusal(next + "type = \"add\"\nresidual = \"c\"\n"),
            "net.toml:10: 'residual': no layer before this one is called 'c'");
  EXPECT_EQ(refusal(next + "type = \"add\"\n"), "net.toml:7: layer 2 lacks the key 'residual'");
  EXPECT_EQ(refusal(next + "type = \"batch-norm\"\nresidual = \"a\"\n"),
            "net.toml:10: layer 2 has no key 'residual'; it takes add, epsilon, frozen, init, input, momentum, name, "
            "relu, type");
  EXPECT_EQ(refusal(next + "type = \"dropout\"\nrate = 1.0\n"),
            "net.toml:10: 'rate' must be a number of at least 0 and below 1");
  EXPECT_EQ(refusal("name = \"x\"\n[[layer]]\nname = \"image\"\n"),
            "net.toml:3: 'image' is the name of the image itself");
}

TEST(ModelFile, RefusesTwoLayersOfOneNameAndInvalidNames) {
  const std::string layer = "[[layer]]\nname = \"a\"\ntype = \"linear\"\nunits = 2\n";
  EXPECT_EQ(refusal("name = \"x\"\n" + layer + layer), "net.toml:7: two layers are called 'a'");
  EXPECT_NE(refusal("name = \"x\"\n[[layer]]\nname = \"a/b\"\n").find("net.toml:3: 'a/b' is no layer name"),
            std::string::npos);
}

TEST(ModelFile, NamesTheLineOfBrokenText) {
  const std::string broken = refusal("name = \"x\"\nlayer = = 3\n");
  EXPECT_TRUE(broken.starts_with("net.toml:2: ")) << broken;
  EXPECT_NE(refusal(""), "no error");
}

TEST(ModelFile, ThatIsNestedTooDeepIsRefusedBeforeTheStackOverflows) {
  const std::string text = "name = \"x\"\nlayer = " + std::string(200'000, '[');
  EXPECT_TRUE(refusal(text).starts_with("net.toml:2: this is nested too deeply")) << refusal(text);
}

TEST(ModelFile, RefusesNamesThatNoCheckpointCouldHave) {
  const auto model = [](std::size_t length) {
    return "name = \"x\"\n[[layer]]\nname = \"" + std::string(length, 'l') + "\"\ntype = \"linear\"\nunits = 2\n";
  };
  EXPECT_EQ(parse_model(model(900), "net.toml").layers.front().name.size(), 900u);
  EXPECT_EQ(refusal(model(901)),
            "net.toml:3: a layer's name has 901 characters, 900 at most: checkpoints could not hold it");
}

TEST(ModelFile, ThatCannotBeReadIsNamed) {
  EXPECT_THAT(thrown_by([] { read_model_file("/no/such/model.toml"); }),
              reports(ErrorSource::io, "/no/such/model.toml"));
}

TEST(ModelFile, IsNeverReadFromADeviceOrAPipe) {
  const ScratchFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  for (const std::string& path : {std::string("/dev/zero"), folder.file("pipe"), folder.path()}) {
    EXPECT_THAT(thrown_by([&] { read_model_file(path); }).what(), mentions("is no regular file"));
  }
  overwrite(folder.file("large"), {});
  std::filesystem::resize_file(folder.file("large"), std::uintmax_t{1} << 33);
  EXPECT_THAT(thrown_by([&] { read_model_file(folder.file("large")); }).what(), mentions("at most are read"));
}

}  // namespace
}  // namespace tutti
