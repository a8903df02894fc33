#pragma once
// The backward pass of a fused max(0, y): clears the gradient, in place, wherever the output was not
// positive.

#include "backend/cpu/primitive.hpp"

namespace tutti::cpu {

class ReluMask {
 public:
  // Gradient and output share one layout.
  ReluMask(const dnnl::engine& engine, const dnnl::memory& output, const dnnl::memory& gradient);
  void run(CpuStream& stream) { backward_.run(stream); }

 private:
  Primitive backward_;
};

}  // namespace tutti::cpu
