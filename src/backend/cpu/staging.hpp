#pragma once
// Between the layout in which a caller keeps values and the one in which a primitive wants them. Where the
// two are equal, the primitive works on the caller's memory, and there is neither a copy nor memory for one.

#include "backend/cpu/primitive.hpp"

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

}  // namespace tutti::cpu
