#pragma once
// The description of a network: named layers in order, before any image shape or processor is known.

#include "tutti/backend/layer_spec.hpp"
#include "tutti/base/enum_names.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// normal: sigma 0.01; xavier: uniform, fan average; kaiming: normal, fan in; uniform: within 1 / sqrt(fan in). Biases
// start at 0, scales at 1.
enum class Initializer { normal, xavier, kaiming, uniform };
constexpr std::array<std::string_view, 4> enum_names(Initializer) { return {"normal", "xavier", "kaiming", "uniform"}; }

// The same for one layer, and: dirac, where the first outputs, as many as there are inputs, copy these, and the others
// start as the network's; zero; whitening, for convolutions of the image (nn/whitening.hpp).
enum class LayerInitializer { normal, xavier, kaiming, uniform, dirac, zero, whitening };
constexpr std::array<std::string_view, 7> enum_names(LayerInitializer) {
  return {"normal", "xavier", "kaiming", "uniform", "dirac", "zero", "whitening"};
}

// LinearSpec::units of a layer that has one unit per class of the data set.
inline constexpr std::int64_t kUnitsFromClasses = -1;

// The name under which a layer may take the image itself.
inline constexpr std::string_view kImageName = "image";

struct LayerNode {
  std::string name;  // keys random numbers and checkpoints: "conv1", "stage1.block1.conv1"
  LayerSpec spec;
  std::string input{};     // the layer whose output it takes; empty: the one before it, or the image
  std::string residual{};  // the layer whose output it adds; for specs that take a residual
  std::optional<LayerInitializer> initializer{};  // empty: the network's
  std::vector<ParameterKind> frozen{};            // the kinds of parameters that are not trained
  friend bool operator==(const LayerNode&, const LayerNode&) = default;
};

struct NetworkSpec {
  std::string name;
  Initializer initializer = Initializer::xavier;
  std::vector<LayerNode> layers;
  friend bool operator==(const NetworkSpec&, const NetworkSpec&) = default;
};

}  // namespace tutti
