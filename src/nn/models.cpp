#include "tutti/nn/models.hpp"

#include "tutti/base/error.hpp"

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

struct BuiltIn {
  const char* name;
  NetworkSpec (*make)();
};
constexpr std::array kBuiltIn{BuiltIn{"lenet", lenet}, BuiltIn{"lenet-avg", lenet_avg}, BuiltIn{"mlp", mlp},
                              BuiltIn{"linear", linear}};

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
