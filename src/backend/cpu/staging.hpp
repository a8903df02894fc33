#pragma once
// Between the layout in which a caller keeps values and the one in which a primitive wants them. Where the
// two are equal, the primitive works on the caller's memory, and there is neither a copy nor memory for one.

#include "backend/cpu/primitive.hpp"
#include "backend/requests.hpp"

#include <optional>

namespace tutti::cpu {

Primitive make_reorder(const dnnl::engine& engine, const dnnl::memory& from, const dnnl::memory& to);

// Values that a primitive reads.
class StagedInput {
 public:
  StagedInput(const dnnl::engine& engine, const Desc& given, const Desc& wanted);

  // What the primitive takes as its argument.
  const dnnl::memory& memory() const noexcept { return staged_; }
  void load(CpuStream& stream, const void* address);

 private:
  Placed given_;
  dnnl::memory staged_;
  std::optional<Primitive> reorder_;
};

// Values that a primitive writes.
class StagedOutput {
 public:
  StagedOutput(const dnnl::engine& engine, const Desc& given, const Desc& wanted);

  const dnnl::memory& memory() const noexcept { return staged_; }
  // Before the primitive runs.
  void place(void* address) { given_.place(address); }
  // After it has run.
  void deliver(CpuStream& stream);

 private:
  Placed given_;
  dnnl::memory staged_;
  std::optional<Primitive> reorder_;
};

// The backward pass of a fused max(0, y): clears the gradient, in place, wherever the output was not
// positive.
class ReluMask {
 public:
  // Gradient and output share one layout.
  ReluMask(const dnnl::engine& engine, const dnnl::memory& output, const dnnl::memory& gradient);
  void run(CpuStream& stream) { backward_.run(stream); }

 private:
  Primitive backward_;
};

// The second input of layers that add one: brought into the layout of the first, and its gradient back.
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
