#pragma once
// A network for one image shape and number of classes: every layer's shapes and parameters, the same for
// every backend. It holds no values, except initial ones that depend on the data.

#include "tutti/nn/network_spec.hpp"
#include "tutti/nn/parameter_arena.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

inline constexpr int kImage = -1;  // in place of a layer's number

struct NetworkLayer {
  std::string name;
  LayerSpec spec;
  Shape input;  // of one sample
  Shape output;
  int from = kImage;               // the layer whose output is the input; always an earlier one
  int residual_from = kImage;      // the layer whose output is the residual, if the spec takes one
  std::vector<int> parameters{};   // slice numbers, in the order of tutti::parameters(spec, input)
  std::vector<float> whitening{};  // the initial weight for LayerInitializer::whitening
  bool frozen = false;             // none of its parameters are trained; a batch norm uses its running statistics
  // It or a layer before it has parameters that are trained, or is a batch norm that is not frozen: the backward pass
  // also writes the statistics of the step.
  bool has_backward = true;
};

class Network {
 public:
  // Throws an input error that names the layer that is wrong and why: a name that no earlier layer has, an output that
  // no layer reads, shapes that do not fit; for an image that is too small, the least size that fits. Layers that one
  // of the `frozen` patterns matches are frozen; throws a usage error for a pattern without a layer, and if no layer is
  // left to train.
  Network(const NetworkSpec& spec, const Shape& sample, int classes, const std::vector<std::string>& frozen = {});

  const NetworkSpec& spec() const noexcept { return spec_; }
  const Shape& sample() const noexcept { return sample_; }
  int classes() const noexcept { return classes_; }
  const std::vector<NetworkLayer>& layers() const noexcept { return layers_; }
  const ParameterLayout& layout() const noexcept { return layout_; }
  // Whether this layer's output, or the image, has a gradient.
  bool has_gradient(int layer) const {
    return layer != kImage && layers_[static_cast<std::size_t>(layer)].has_backward;
  }
  // The multiply-adds of one sample's forward pass.
  std::int64_t multiply_adds() const;
  // Sets the initial weight of a layer with LayerInitializer::whitening. Without one it starts at 0.
  void set_whitening(std::size_t layer, std::vector<float> weight) { layers_.at(layer).whitening = std::move(weight); }

 private:
  void freeze(const std::vector<std::string>& patterns);
  void find_backward();
  void add_slices(bool statistics);

  NetworkSpec spec_;
  Shape sample_;
  int classes_;
  std::vector<NetworkLayer> layers_;
  ParameterLayout layout_;
};

// Initial values for every slice: pure functions of (seed, slice name, element), equal on any machine. `initializer`
// is for the layers without their own.
void initialize(const Network& network, Initializer initializer, std::uint64_t seed, Backend& backend,
                const Tensor& block);

}  // namespace tutti
