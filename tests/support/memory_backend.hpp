#pragma once
// A backend that allocates host memory and computes nothing.

#include "tutti/backend/backend.hpp"
#include "tutti/base/error.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

namespace tutti::testing_support {

class MemoryBackend : public Backend {
 public:
  int allocations() const { return allocations_; }

  std::string description() const override { return "memory only"; }
  MemorySpace memory_space() const override { return MemorySpace::host; }
  void enter_compute_thread(int) override { refuse(); }
  Buffer allocate(std::size_t bytes) override { return allocate_in(memory_space(), bytes); }
  std::unique_ptr<Stream> make_stream() override {
    struct Immediate : Stream {
      void synchronize() override {}
    };
    return std::make_unique<Immediate>();
  }
  void copy(Stream&, const Tensor&, const Tensor&) override { refuse(); }
  void fill_zero(Stream&, const Tensor&) override { refuse(); }
  void add(Stream&, const Tensor&, const Tensor&) override { refuse(); }
  void blend(Stream&, const Tensor&, const Tensor&, float) override { refuse(); }
  void convert(Stream&, const Tensor&, const Tensor&) override { refuse(); }
  void to_fixed_point(Stream&, const FixedPointGrid&, const ToFixedPoint&) override { refuse(); }
  void from_fixed_point(Stream&, const FixedPointGrid&, const FromFixedPoint&) override { refuse(); }
  void sum_runs(Stream&, const Tensor&, const Tensor&, const Tensor&) override { refuse(); }
  void find_not_finite(Stream&, const NotFiniteSearch&) override { refuse(); }
  void sgd_step(Stream&, const SgdStep&) override { refuse(); }
  void adamw_step(Stream&, const AdamWStep&) override { refuse(); }
  void sum_squares(Stream&, std::span<const Tensor>, const Tensor&) override { refuse(); }
  void clip_factor(Stream&, const Tensor&, double, const Tensor&) override { refuse(); }
  void trust_factors(Stream&, const TrustFactors&) override { refuse(); }
  void add_digests(Stream&, std::span<const DigestedTensor>, const Tensor&) override { refuse(); }
  ActivationSpec plain_activation(const Shape&) override { refuse(); }
  void to_plain(Stream&, const ActivationSpec&, const void*, const Tensor&) override { refuse(); }
  std::unique_ptr<LayerWeights> make_weights(const LayerSpec&, std::span<const Tensor>) override { refuse(); }
  std::unique_ptr<Layer> make_layer(const LayerSpec&, const LayerRequest&) override { refuse(); }
  std::unique_ptr<LossLayer> make_softmax_loss(const ActivationSpec&, const LossOptions&) override { refuse(); }

 protected:
  Buffer allocate_in(MemorySpace space, std::size_t bytes) {
    ++allocations_;
    return {std::calloc(bytes, 1), bytes, space, [](void* data) { std::free(data); }};
  }
  [[noreturn]] static void refuse() { throw Error(ErrorSource::internal, "this backend only holds memory"); }

 private:
  std::atomic<int> allocations_{0};
};

}  // namespace tutti::testing_support
