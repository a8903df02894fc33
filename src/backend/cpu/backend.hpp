#pragma once
// The backend interface for CPUs. Vector operations are in flat.cpp; fixed-point sums, digests and the search for
// non-finite values, which are compiled for each instruction set, are in fixed_point.cpp.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/tensor.hpp"

namespace tutti::cpu {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(Precision precision);

  std::string description() const override { return description_; }
  MemorySpace memory_space() const override { return MemorySpace::host; }
  // Sets the number of threads that run the passes that the calling thread starts, and turns off flushing of denormal
  // numbers.
  void enter_compute_thread(int threads) override;

  Buffer allocate(std::size_t bytes) override { return allocate_host(bytes); }
  std::unique_ptr<Stream> make_stream() override;

  void copy(Stream& stream, const Tensor& to, const Tensor& from) override;
  void fill_zero(Stream& stream, const Tensor& tensor) override;
  void add(Stream& stream, const Tensor& to, const Tensor& from) override;
  void blend(Stream& stream, const Tensor& to, const Tensor& from, float share) override;
  void convert(Stream& stream, const Tensor& to, const Tensor& from) override;
  void to_fixed_point(Stream& stream, const FixedPointGrid& grid, const ToFixedPoint& request) override;
  void from_fixed_point(Stream& stream, const FixedPointGrid& grid, const FromFixedPoint& request) override;
  void find_not_finite(Stream& stream, const NotFiniteSearch& search) override;
  void sgd_step(Stream& stream, const SgdStep& step) override;
  void adamw_step(Stream& stream, const AdamWStep& step) override;
  void sum_squares(Stream& stream, std::span<const Tensor> tensors, const Tensor& sums) override;
  void sum_runs(Stream& stream, const Tensor& values, const Tensor& ends, const Tensor& sums) override;
  void clip_factor(Stream& stream, const Tensor& squares, double max_norm, const Tensor& factor) override;
  void trust_factors(Stream& stream, const TrustFactors& request) override;
  void add_digests(Stream& stream, std::span<const DigestedTensor> tensors, const Tensor& digests) override;

  ActivationSpec plain_activation(const Shape& shape) override;
  void to_plain(Stream& stream, const ActivationSpec& activation, const void* from, const Tensor& to) override;
  std::unique_ptr<LayerWeights> make_weights(const LayerSpec& spec, std::span<const Tensor> values) override;
  std::unique_ptr<Layer> make_layer(const LayerSpec& spec, const LayerRequest& request) override;
  std::unique_ptr<LossLayer> make_softmax_loss(const ActivationSpec& logits, const LossOptions& options) override;

 private:
  std::string description_;
  ElementType type_;  // of the activations that convolutions and linear layers compute
};

}  // namespace tutti::cpu
