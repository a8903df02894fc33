#pragma once
// Activations in the layout that a layer wants. If the caller's layout is that one, its memory is used without a copy.

#include "backend/cpu/conversion.hpp"

namespace tutti::cpu {

class Staged {
 public:
  Staged(const Layout& given, const Layout& wanted);

  // In the wanted layout.
  void* address() const { return same_ ? given_address_ : copy_.data(); }
  // Called before a pass: load() for what it reads, bind() for what it writes, followed by deliver().
  void load(CpuStream& stream, const void* address);
  void bind(void* address) { given_address_ = address; }
  void deliver(CpuStream& stream);

 private:
  Layout given_;
  Layout wanted_;
  bool same_;
  Buffer copy_;
  void* given_address_ = nullptr;
};

// The residual input of a layer. It is converted to the layout of the first input, and its gradient back.
class Residual {
 public:
  // `stored` is the caller's layout of the residual, `wanted` the layer's layout of its output.
  Residual(const Layout& stored, const Layout& wanted) : stored_(stored), wanted_(wanted), input_(stored, wanted) {}

  // The residual in the wanted layout.
  const void* load(CpuStream& stream, const void* address) {
    input_.load(stream, address);
    return input_.address();
  }

  // If true, the gradient needs no conversion.
  bool same_layout() const { return stored_ == wanted_; }
  void deliver_gradient(CpuStream& stream, void* gradient, void* to) {
    if (same_layout() || to == nullptr) return;
    convert_activation(stream, {wanted_, gradient}, {stored_, to});
  }

 private:
  Layout stored_;
  Layout wanted_;
  Staged input_;
};

}  // namespace tutti::cpu
