#include "tutti/nn/models.hpp"

#include "tutti/base/error.hpp"

#include "residual_models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace tutti {
namespace {

LayerNode dense(const char* name, std::int64_t units, bool relu) {
  return {name, LinearSpec{.units = units, .relu = relu}};
}

NetworkSpec lenet_with(const char* name, Pooling pooling, Initializer initializer) {
  const Pool2dSpec halve{.pooling = pooling, .kernel = 2, .stride = 2};
  return {name,
          initializer,
          {{"conv1", Conv2dSpec{.channels = 20, .kernel = 3, .relu = true}},
           {"pool1", halve},
           {"conv2", Conv2dSpec{.channels = 50, .kernel = 5, .relu = true}},
           {"pool2", halve},
           dense("dense1", 128, true),
           dense("dense2", kUnitsAsClasses, false)}};
}

NetworkSpec lenet() { return lenet_with("lenet", Pooling::max, Initializer::kaiming); }
NetworkSpec lenet_avg() { return lenet_with("lenet-avg", Pooling::average, Initializer::normal); }
NetworkSpec mlp() {
  return {"mlp", Initializer::kaiming, {dense("dense1", 256, true), dense("dense2", kUnitsAsClasses, false)}};
}
NetworkSpec linear() { return {"linear", Initializer::xavier, {dense("dense1", kUnitsAsClasses, false)}}; }

NetworkSpec vgg11() {
  constexpr std::array<std::array<std::int64_t, 2>, 5> kStages{{{1, 64}, {1, 128}, {2, 256}, {2, 512}, {2, 512}}};
  NetworkSpec network{"vgg11", Initializer::kaiming, {}};
  const auto add = [&](std::string name, const LayerSpec& spec) { network.layers.push_back({std::move(name), spec}); };
  for (std::size_t stage = 0; stage < kStages.size(); ++stage) {
    const auto [convolutions, channels] = kStages.at(stage);
    for (int i = 1; i <= convolutions; ++i) {
      add(fmt::format("stage{}.conv{}", stage + 1, i),
          Conv2dSpec{.channels = channels, .kernel = 3, .padding = 1, .relu = true});
    }
    add(fmt::format("stage{}.pool", stage + 1), Pool2dSpec{.pooling = Pooling::max, .kernel = 2, .stride = 2});
  }
  for (int i = 1; i <= 2; ++i) {
    add(fmt::format("dense{}", i), LinearSpec{.units = 4096, .relu = true});
    add(fmt::format("dropout{}", i), DropoutSpec{.rate = 0.5});
  }
  add("head", LinearSpec{.units = kUnitsAsClasses});
  return network;
}

struct BuiltIn {
  const char* name;
  NetworkSpec (*make)();
};
constexpr std::array kBuiltIn{BuiltIn{"lenet", lenet},       BuiltIn{"lenet-avg", lenet_avg},
                              BuiltIn{"mlp", mlp},           BuiltIn{"linear", linear},
                              BuiltIn{"resnet18", resnet18}, BuiltIn{"resnet34", resnet34},
                              BuiltIn{"resnet50", resnet50}, BuiltIn{"vgg11", vgg11}};

const BuiltIn* find(std::string_view name) {
  const auto* found = std::ranges::find_if(kBuiltIn, [&](const BuiltIn& model) { return name == model.name; });
  return found == kBuiltIn.end() ? nullptr : found;
}

}  // namespace

std::vector<std::string> built_in_model_names() {
  std::vector<std::string> names;
  for (const BuiltIn& model : kBuiltIn) names.emplace_back(model.name);
  return names;
}

NetworkSpec built_in_model(std::string_view name) {
  if (const BuiltIn* model = find(name)) return model->make();
  throw Error(ErrorSource::usage, fmt::format("no model is called '{}': give one of {}, or the path of a model file",
                                              name, fmt::join(built_in_model_names(), ", ")));
}

}  // namespace tutti
