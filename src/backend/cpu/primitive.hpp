#pragma once
// A compiled oneDNN primitive together with its arguments, and memory whose address is given anew for every
// pass.

#include "backend/cpu/format.hpp"
#include "backend/cpu/stream.hpp"

#include <dnnl.hpp>

#include <source_location>
#include <string>
#include <tuple>
#include <unordered_map>

namespace tutti::cpu {

// What versions 2 and 3 of oneDNN spell differently. Version 2 describes what a primitive computes by an object of its
// own, of which a plan is then made; version 3 makes the plan at once, and wants a little more said. Which of them is
// at hand is read off the library's types.
template <class P>
concept WithDescriptor = requires {
  typename P::desc;
};

// An argument that version 2 does not take.
template <class T>
struct OnlyIn3 {
  const T& value;
};

template <class P, class T>
auto taken_by(const T& argument) {
  return std::tie(argument);
}
template <class P, class T>
auto taken_by(const OnlyIn3<T>& argument) {
  if constexpr (WithDescriptor<P>) {
    return std::tuple();
  } else {
    return std::tie(argument.value);
  }
}

struct PlanContext {
  const dnnl::engine& engine;
  dnnl::primitive_attr attributes;
};

// A plan of the forward primitive P.
template <class P, class... What>
typename P::primitive_desc make_plan(const PlanContext& context, const What&... what) {
  const auto make = [&](const auto&... taken) -> typename P::primitive_desc {
    if constexpr (WithDescriptor<P>) {
      return {{taken...}, context.attributes, context.engine};
    } else {
      return {context.engine, taken..., context.attributes};
    }
  };
  return std::apply(make, std::tuple_cat(taken_by<P>(what)...));
}

// A plan of the backward primitive P, which leans on the plan of its forward one.
template <class P, class Forward, class... What>
typename P::primitive_desc make_backward_plan(const PlanContext& context, const Forward& forward, const What&... what) {
  const auto make = [&](const auto&... taken) -> typename P::primitive_desc {
    if constexpr (WithDescriptor<P>) {
      return {{taken...}, context.attributes, context.engine, forward};
    } else {
      return {context.engine, taken..., forward, context.attributes};
    }
  };
  return std::apply(make, std::tuple_cat(taken_by<P>(what)...));
}

template <class PostOps>
void append_relu(PostOps& after) {
  constexpr auto kRelu = dnnl::algorithm::eltwise_relu;
  if constexpr (requires { after.append_eltwise(1.0f, kRelu, 0.0f, 0.0f); }) {
    after.append_eltwise(1.0f, kRelu, 0.0f, 0.0f);
  } else {
    after.append_eltwise(kRelu, 0.0f, 0.0f);
  }
}

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
