#pragma once
// A compiled oneDNN primitive together with its arguments, and memory whose address is given anew for every
// pass.

#include "backend/cpu/format.hpp"
#include "backend/cpu/stream.hpp"

#include <dnnl.hpp>

#include <source_location>
#include <string>
#include <unordered_map>

namespace tutti::cpu {

using Arguments = std::unordered_map<int, dnnl::memory>;

// Attributes that every primitive is made with, with or without a max(0, y) at its end. Scratch memory is the
// stream's; and no environment variable may lower the precision.
dnnl::primitive_attr attributes(bool relu = false);
dnnl::prop_kind forward_kind(LayerMode mode);

// Whether oneDNN compiles code for this problem, rather than fall back on its reference loops.
bool is_compiled(const dnnl::primitive_desc_base& plan);
// The same, and not by unrolling the image into a matrix either.
bool is_direct(const dnnl::primitive_desc_base& plan);

// Memory of a fixed layout whose address comes with each pass. Copies of the handle follow.
class Placed {
 public:
  Placed(const dnnl::engine& engine, const Desc& desc) : memory_(desc, engine, DNNL_MEMORY_NONE) {}
  const dnnl::memory& memory() const noexcept { return memory_; }
  void place(const void* address);

 private:
  dnnl::memory memory_;
};

class Primitive {
 public:
  // `plan` is any oneDNN primitive descriptor made with attributes().
  Primitive(const dnnl::engine& engine, const dnnl::primitive_desc_base& plan, Arguments arguments);
  void run(CpuStream& stream, std::source_location where = std::source_location::current());

 private:
  dnnl::primitive primitive_;
  std::string name_;
  std::size_t scratch_bytes_;
  Placed scratch_;
  Arguments arguments_;
};

}  // namespace tutti::cpu
