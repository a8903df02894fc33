#include "tutti/backend/cuda_stream.hpp"
#include "tutti/base/error.hpp"

#include "backend/cuda/device_tensor.hpp"
#include "backend/cuda/format.hpp"
#include "backend/cuda/layers.hpp"
#include "backend/cuda/native.hpp"
#include "backend/cuda/softmax_loss_kernels.hpp"
#include "backend/loss_request.hpp"

#include <fmt/format.h>

namespace tutti::cuda {
namespace {

class SoftmaxLoss final : public LossLayer {
 public:
  SoftmaxLoss(const Processor& processor, const ActivationSpec& logits, double smoothing)
      : samples_(logits.shape[0]),
        classes_(logits.shape[1]),
        stride_(is_plain(logits) ? classes_ : layout_of(logits).padded_channels),
        type_(format_of(logits).type()),
        smoothing_(smoothing),
        losses_bytes_(static_cast<std::size_t>(softmax_blocks(samples_)) * sizeof(double)),
        losses_(allocate_cuda(processor.device, losses_bytes_ + sizeof(unsigned))) {}

  void run(Stream& stream, const LossPass& pass) override {
    if (pass.sums.elements() != LossSums::kFigures) {
      throw Error(ErrorSource::internal,
                  fmt::format("loss sums are {} figures, not {}", LossSums::kFigures, pass.sums.elements()));
    }
    auto* const memory = static_cast<std::byte*>(losses_.data());
    launch_softmax_loss(native(as_cuda_stream(stream)),
                        {.logits = pass.logits,
                         .gradient = pass.logits_gradient,
                         .labels = pass.labels,
                         .samples = samples_,
                         .classes = static_cast<int>(classes_),
                         .stride = static_cast<int>(stride_),
                         .smoothing = smoothing_,
                         .gradient_scale = pass.gradient_scale,
                         .losses = reinterpret_cast<double*>(memory),
                         .blocks_done = reinterpret_cast<unsigned*>(memory + losses_bytes_),
                         .sums = device_i64(pass.sums)},
                        type_);
  }

 private:
  std::int64_t samples_;
  std::int64_t classes_;
  std::int64_t stride_;
  ElementType type_;
  double smoothing_;
  std::size_t losses_bytes_;
  Buffer losses_;  // of blocks, and how many blocks are done
};

}  // namespace

std::unique_ptr<LossLayer> make_softmax_loss(const Processor& processor, const ActivationSpec& logits,
                                             double smoothing) {
  require_loss(logits.shape, smoothing);
  return std::make_unique<SoftmaxLoss>(processor, logits, smoothing);
}

}  // namespace tutti::cuda
