#pragma once
// One layer's weights on the CPU: the canonical values, and a copy for every layout that a plan of the layer needs.
// Plans of all batch sizes and parts share the copies; weights must not be refreshed while plans run.

#include "tutti/backend/layer_spec.hpp"

#include "backend/cpu/primitive.hpp"
#include "backend/requests.hpp"

#include <mutex>
#include <span>
#include <vector>

namespace tutti::cpu {

class CpuWeights final : public LayerWeights {
 public:
  CpuWeights(const dnnl::engine& engine, const LayerSpec& spec, std::span<const Tensor> values);
  void refresh(Stream& stream) override;

  // The value at `index` of parameters() in this layout. refresh() updates it from now on. If refresh() was called
  // before, the copy is made now. Thread-safe.
  dnnl::memory prepared(std::size_t index, const Desc& wanted);

  // The same in its canonical order.
  const float* canonical(std::size_t index) const { return static_cast<const float*>(values_.at(index).data); }

 private:
  friend CpuWeights& weights_of(const LayerSpec& spec, const LayerRequest& request);
  struct Copy {
    std::size_t index;
    dnnl::memory values;
    Reorder reorder;
  };

  dnnl::engine engine_;
  LayerSpec spec_;
  std::vector<Tensor> values_;
  std::mutex mutex_;
  std::vector<Copy> copies_;
  bool refreshed_ = false;
};

// Throws unless the request has CPU weights of this layer.
CpuWeights& weights_of(const LayerSpec& spec, const LayerRequest& request);

}  // namespace tutti::cpu
