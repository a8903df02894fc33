// Being replaced piece by piece.

#include "tutti/base/error.hpp"

#include "backend/cuda/convert.hpp"
#include "backend/cuda/convolution.hpp"
#include "backend/cuda/flat.hpp"
#include "backend/cuda/image_store.hpp"
#include "backend/cuda/layers.hpp"

namespace tutti::cuda {
namespace {
[[noreturn]] void unfinished() { throw Error(ErrorSource::internal, "unfinished"); }
}  // namespace

// Vector operations, conversion, images, loss
void copy(CudaStream&, const Tensor&, const Tensor&) { unfinished(); }
void fill_zero(CudaStream&, const Tensor&) { unfinished(); }
void add(CudaStream&, const Tensor&, const Tensor&) { unfinished(); }
void blend(CudaStream&, const Tensor&, const Tensor&, float) { unfinished(); }
void sgd_step(CudaStream&, const SgdStep&) { unfinished(); }
void adamw_step(CudaStream&, const AdamWStep&) { unfinished(); }
void sum_squares(CudaStream&, std::span<const Tensor>, const Tensor&) { unfinished(); }
void clip_factor(CudaStream&, const Tensor&, double, const Tensor&) { unfinished(); }
void trust_factors(CudaStream&, const TrustFactors&) { unfinished(); }
void to_plain(CudaStream&, const ActivationSpec&, const void*, float*) { unfinished(); }
void from_plain(CudaStream&, const ActivationSpec&, const float*, void*) { unfinished(); }
std::unique_ptr<ImageStore> hold_images(int, const HeldImages&) { return nullptr; }
std::unique_ptr<LossLayer> make_softmax_loss(const Processor&, const ActivationSpec&, double) { unfinished(); }

// Layers of bandwidth
std::unique_ptr<Layer> make(const Processor&, const Pool2dSpec&, const LayerRequest&) { unfinished(); }
std::unique_ptr<Layer> make(const Processor&, const BatchNormSpec&, const LayerRequest&) { unfinished(); }
std::unique_ptr<Layer> make(const Processor&, const AddSpec&, const LayerRequest&) { unfinished(); }
std::unique_ptr<Layer> make(const Processor&, const GlobalAveragePoolSpec&, const LayerRequest&) { unfinished(); }
std::unique_ptr<Layer> make(const Processor&, const DropoutSpec&, const LayerRequest&) { unfinished(); }

// Convolutions
std::unique_ptr<ConvolutionPlanner> make_convolution_planner(const PlannerOptions&) { unfinished(); }
std::string convolution_library() { unfinished(); }

}  // namespace tutti::cuda
