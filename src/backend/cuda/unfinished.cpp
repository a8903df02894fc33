// Being replaced piece by piece.

#include "tutti/base/error.hpp"

#include "backend/cuda/convolution.hpp"
#include "backend/cuda/layers.hpp"

namespace tutti::cuda {
namespace {
[[noreturn]] void unfinished() { throw Error(ErrorSource::internal, "unfinished"); }
}  // namespace

// Layers of bandwidth
std::unique_ptr<Layer> make(const Processor&, const Pool2dSpec&, const LayerRequest&) { unfinished(); }
std::unique_ptr<Layer> make(const Processor&, const BatchNormSpec&, const LayerRequest&) { unfinished(); }
std::unique_ptr<Layer> make(const Processor&, const AddSpec&, const LayerRequest&) { unfinished(); }
std::unique_ptr<Layer> make(const Processor&, const GlobalAveragePoolSpec&, const LayerRequest&) { unfinished(); }
std::unique_ptr<Layer> make(const Processor&, const DropoutSpec&, const LayerRequest&) { unfinished(); }

// Convolutions
std::unique_ptr<Layer> make(const Processor&, const Conv2dSpec&, const LayerRequest&) { unfinished(); }
std::unique_ptr<Layer> make(const Processor&, const LinearSpec&, const LayerRequest&) { unfinished(); }
std::unique_ptr<LayerWeights> make_weights(const Processor&, const LayerSpec&, std::span<const Tensor>) {
  unfinished();
}
class NoPlanner final : public ConvolutionPlanner {
 public:
  std::unique_ptr<ConvolutionPlan> plan(ConvolutionPass, const ConvolutionShape&) override { unfinished(); }
  std::string choices() const override { return {}; }
  void adopt_choices(const std::string&) override {}
};
std::unique_ptr<ConvolutionPlanner> make_convolution_planner(const PlannerOptions&) {
  return std::make_unique<NoPlanner>();
}
std::string convolution_library() { return "no convolutions"; }

}  // namespace tutti::cuda
