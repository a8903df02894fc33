#include "backend/cpu/relu_mask.hpp"

#include "backend/cpu/make_plan.hpp"

namespace tutti::cpu {
namespace {

Primitive make_backward(const dnnl::engine& engine, const dnnl::memory& output, const dnnl::memory& gradient) {
  constexpr auto kRelu = dnnl::algorithm::eltwise_relu_use_dst_for_bwd;
  const Desc desc = output.get_desc();
  const auto forward = make_plan<dnnl::eltwise_forward>({engine, {}}, dnnl::prop_kind::forward_training, kRelu, desc,
                                                        OnlyIn3{desc}, 0.0f);
  const auto plan = make_backward_plan<dnnl::eltwise_backward>({engine, attributes()}, forward, kRelu, desc,
                                                               OnlyIn3{desc}, desc, 0.0f);
  return Primitive(engine, plan,
                   {{DNNL_ARG_DST, output}, {DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, gradient}});
}

}  // namespace

ReluMask::ReluMask(const dnnl::engine& engine, const dnnl::memory& output, const dnnl::memory& gradient)
    : backward_(make_backward(engine, output, gradient)) {}

}  // namespace tutti::cpu
