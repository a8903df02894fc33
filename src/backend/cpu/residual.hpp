#pragma once
// The second input of layers that add one: brought into the layout of the first, and its gradient back.

#include "backend/cpu/staging.hpp"
#include "backend/requests.hpp"

#include <optional>

namespace tutti::cpu {

class Residual {
 public:
  // `stored` is how the caller keeps the residual, `wanted` how the layer keeps its output.
  Residual(const dnnl::engine& engine, const Desc& stored, const Desc& wanted)
      : input_(engine, stored, wanted), gradient_(engine, wanted), stored_gradient_(engine, stored) {
    if (stored != wanted) reorder_ = make_reorder(engine, gradient_.memory(), stored_gradient_.memory());
  }

  // The residual in the wanted layout.
  const void* load(CpuStream& stream, const void* address) {
    input_.load(stream, address);
    return input_.memory().get_data_handle();
  }

  // Whether its gradient, where it is in the wanted layout, is in the stored one too.
  bool is_stored_as_wanted() const noexcept { return !reorder_; }
  void deliver_gradient(CpuStream& stream, const void* gradient, void* to) {
    if (!reorder_ || to == nullptr) return;
    gradient_.place(gradient);
    stored_gradient_.place(to);
    reorder_->run(stream);
  }

 private:
  StagedInput input_;
  Placed gradient_;
  Placed stored_gradient_;
  std::optional<Primitive> reorder_;
};

}  // namespace tutti::cpu
