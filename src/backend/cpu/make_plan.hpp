#pragma once
// What versions 2 and 3 of oneDNN spell differently. Version 2 describes what a primitive computes by an object of its
// own, of which a plan is then made; version 3 makes the plan at once, and wants a little more said. Which of them is
// at hand is read off the library's types.

#include "backend/cpu/format.hpp"

#include <dnnl.hpp>

#include <tuple>

namespace tutti::cpu {

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

}  // namespace tutti::cpu
