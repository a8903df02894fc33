#pragma once
// Copies of activations between layouts and types.

#include "backend/cpu/format.hpp"
#include "backend/cpu/stream.hpp"

namespace tutti::cpu {

struct StoredActivation {
  const Layout& layout;
  void* values;
};

// Both have the same shape.
void convert_activation(CpuStream& stream, const StoredActivation& from, const StoredActivation& to);

// An activation in the layout that a layer wants. If the caller's layout is that one, it is used without a copy.
class Staged {
 public:
  Staged(const Layout& given, const Layout& wanted);

  bool same_layout() const { return same_; }
  // In the wanted layout.
  void* address() const { return same_ ? given_address_ : copy_.data(); }
  // Called before a pass: load() for what it reads, which returns address(); bind() for what it writes, followed by
  // deliver().
  const void* load(CpuStream& stream, const void* address);
  void bind(void* address) { given_address_ = address; }
  void deliver(CpuStream& stream);
  // Copies a gradient from the wanted layout to the caller's, unless both are the same, or `to` is null.
  void deliver_gradient(CpuStream& stream, void* values, void* to) const;

 private:
  Layout given_;
  Layout wanted_;
  bool same_;
  Buffer copy_;
  void* given_address_ = nullptr;
};

}  // namespace tutti::cpu
