#pragma once
// A compiled oneDNN primitive together with its arguments, memory whose address is given anew for every pass, and
// values on their way between the layout in which a caller keeps them and the one in which a primitive wants them.
// Where the two are equal, the primitive works on the caller's memory, and there is neither a copy nor memory for one.

#include "backend/cpu/format.hpp"
#include "backend/cpu/stream.hpp"
#include "backend/requests.hpp"

#include <dnnl.hpp>

#include <optional>
#include <source_location>
#include <string>
#include <tuple>
#include <unordered_map>

namespace tutti::cpu {

// Versions 2 and 3 of oneDNN differ here. Version 2 describes what a primitive computes by an object of its own and
// makes a plan from that; version 3 makes the plan at once and takes more arguments. The library's types show which
// version it is.
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

// The attributes of every primitive, with or without a max(0, y) at its end. Scratch memory belongs to the stream, and
// no environment variable may lower the precision.
dnnl::primitive_attr attributes(bool relu = false);
dnnl::prop_kind forward_kind(LayerMode mode);

// Whether oneDNN compiles code for this problem, rather than fall back on its reference loops.
bool is_compiled(const dnnl::primitive_desc_base& plan);
// Whether it also avoids unrolling the image into a matrix.
bool is_direct(const dnnl::primitive_desc_base& plan);

// Memory of a fixed layout whose address comes with each pass. Copies of the handle see the new address.
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

Primitive make_reorder(const dnnl::engine& engine, const dnnl::memory& from, const dnnl::memory& to);

// Values that a primitive reads or writes, on their way between the caller's layout and its own.
class Staged {
 public:
  enum class Use { read, written };
  Staged(const dnnl::engine& engine, const Desc& given, const Desc& wanted, Use use);

  // What the primitive takes as its argument.
  const dnnl::memory& memory() const noexcept { return staged_; }
  // Before the primitive runs: `load` for values that it reads, `place` for those that it writes.
  void load(CpuStream& stream, const void* address);
  void place(void* address) { given_.place(address); }
  // After it has written them.
  void deliver(CpuStream& stream);

 private:
  Placed given_;
  dnnl::memory staged_;
  std::optional<Primitive> reorder_;
};

// The backward pass of a fused max(0, y): clears the gradient, in place, wherever the output was not positive. Gradient
// and output share one layout.
Primitive make_relu_mask(const dnnl::engine& engine, const dnnl::memory& output, const dnnl::memory& gradient);

// The second input of layers that add one. It is converted to the layout of the first, and its gradient back.
class Residual {
 public:
  // `stored` is the caller's layout of the residual, `wanted` the layer's layout of its output.
  Residual(const dnnl::engine& engine, const Desc& stored, const Desc& wanted)
      : input_(engine, stored, wanted, Staged::Use::read), gradient_(engine, wanted), stored_gradient_(engine, stored) {
    if (stored != wanted) reorder_ = make_reorder(engine, gradient_.memory(), stored_gradient_.memory());
  }

  // The residual in the wanted layout.
  const void* load(CpuStream& stream, const void* address) {
    input_.load(stream, address);
    return input_.memory().get_data_handle();
  }

  // Whether the two layouts are equal, so that the gradient needs no conversion.
  bool is_stored_as_wanted() const noexcept { return !reorder_; }
  void deliver_gradient(CpuStream& stream, const void* gradient, void* to) {
    if (!reorder_ || to == nullptr) return;
    gradient_.place(gradient);
    stored_gradient_.place(to);
    reorder_->run(stream);
  }

 private:
  Staged input_;
  Placed gradient_;
  Placed stored_gradient_;
  std::optional<Primitive> reorder_;
};

}  // namespace tutti::cpu
