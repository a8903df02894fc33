#pragma once
// A oneDNN primitive with its arguments, memory objects that are bound to a new address for every pass, and reorders
// between the caller's layout and the primitive's. If the two layouts are equal, the primitive uses the caller's memory
// directly, without a copy.

#include "backend/cpu/format.hpp"
#include "backend/cpu/stream.hpp"

#include <dnnl.hpp>

#include <optional>
#include <source_location>
#include <string>
#include <tuple>
#include <unordered_map>

namespace tutti::cpu {

// oneDNN 2 makes a primitive descriptor from a separate operation descriptor; oneDNN 3 makes it directly and takes more
// arguments. The library's types show which version it is.
template <class P>
concept WithDescriptor = requires {
  typename P::desc;
};

// An argument that version 2 does not take.
template <class T>
struct OneDnn3Only {
  const T& value;
};

template <class P, class T>
auto accepted_by(const T& argument) {
  return std::tie(argument);
}
template <class P, class T>
auto accepted_by(const OneDnn3Only<T>& argument) {
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
  return std::apply(make, std::tuple_cat(accepted_by<P>(what)...));
}

// A plan of the backward primitive P, which needs the plan of its forward primitive.
template <class P, class Forward, class... What>
typename P::primitive_desc make_backward_plan(const PlanContext& context, const Forward& forward, const What&... what) {
  const auto make = [&](const auto&... taken) -> typename P::primitive_desc {
    if constexpr (WithDescriptor<P>) {
      return {{taken...}, context.attributes, context.engine, forward};
    } else {
      return {context.engine, taken..., forward, context.attributes};
    }
  };
  return std::apply(make, std::tuple_cat(accepted_by<P>(what)...));
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

// The attributes of every primitive, with or without a max(0, y) at its end. Scratch memory belongs to the stream, and
// no environment variable may lower the precision.
dnnl::primitive_attr attributes(bool relu = false);
dnnl::prop_kind forward_kind(LayerMode mode);

// Whether oneDNN generates code for this problem instead of falling back to its reference loops.
bool is_compiled(const dnnl::primitive_desc_base& plan);
// Whether it also avoids im2col and a matrix product.
bool is_direct(const dnnl::primitive_desc_base& plan);

// A memory object of a fixed layout that is bound to a new address in each pass. Copies of the handle see the new
// address.
dnnl::memory unbound(const dnnl::engine& engine, const Desc& desc);
void bind(const dnnl::memory& memory, const void* address);

class Primitive {
 public:
  // `plan` is any oneDNN primitive descriptor made with attributes().
  Primitive(const dnnl::engine& engine, const dnnl::primitive_desc_base& plan, Arguments arguments);
  void run(CpuStream& stream, std::source_location where = std::source_location::current());

 private:
  dnnl::primitive primitive_;
  std::string name_;
  std::size_t scratch_bytes_;
  dnnl::memory scratch_;
  Arguments arguments_;
};

// A copy to another layout or type. Those of activations are our own: oneDNN has none of bf16 below AVX-512, and some
// lose the sign of zero.
class Reorder {
 public:
  Reorder(const dnnl::memory& from, const dnnl::memory& to);
  void run(CpuStream& stream);

 private:
  dnnl::memory from_;
  dnnl::memory to_;
  std::optional<Primitive> primitive_;
};

// An argument of a primitive, with a reorder between the caller's layout and the primitive's.
class Staged {
 public:
  enum class Use { read, written };
  Staged(const dnnl::engine& engine, const Desc& given, const Desc& wanted, Use use);

  // The primitive's argument.
  const dnnl::memory& memory() const noexcept { return staged_; }
  void* address() const { return staged_.get_data_handle(); }
  // Called before the primitive runs: load() for inputs, bind() for outputs.
  void load(CpuStream& stream, const void* address);
  void bind(void* address) { tutti::cpu::bind(given_, address); }
  // Called after the primitive ran, for outputs.
  void deliver(CpuStream& stream);

 private:
  dnnl::memory given_;
  dnnl::memory staged_;
  std::optional<Reorder> reorder_;
};

// The residual input of a layer. It is reordered to the layout of the first input, and its gradient back.
class Residual {
 public:
  // `stored` is the caller's layout of the residual, `wanted` the layer's layout of its output.
  Residual(const dnnl::engine& engine, const Desc& stored, const Desc& wanted)
      : input_(engine, stored, wanted, Staged::Use::read),
        gradient_(unbound(engine, wanted)),
        stored_gradient_(unbound(engine, stored)) {
    if (stored != wanted) reorder_.emplace(gradient_, stored_gradient_);
  }

  // The residual in the wanted layout.
  const void* load(CpuStream& stream, const void* address) {
    input_.load(stream, address);
    return input_.address();
  }

  // If true, the gradient needs no reorder.
  bool same_layout() const noexcept { return !reorder_; }
  void deliver_gradient(CpuStream& stream, const void* gradient, void* to) {
    if (!reorder_ || to == nullptr) return;
    bind(gradient_, gradient);
    bind(stored_gradient_, to);
    reorder_->run(stream);
  }

 private:
  Staged input_;
  dnnl::memory gradient_;
  dnnl::memory stored_gradient_;
  std::optional<Reorder> reorder_;
};

}  // namespace tutti::cpu
