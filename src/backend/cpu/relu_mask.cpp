#include "backend/cpu/relu_mask.hpp"

namespace tutti::cpu {
namespace {

Primitive make_backward(const dnnl::engine& engine, const dnnl::memory& output, const dnnl::memory& gradient) {
  constexpr auto kRelu = dnnl::algorithm::eltwise_relu_use_dst_for_bwd;
  const Desc desc = output.get_desc();
  const dnnl::eltwise_forward::primitive_desc forward({dnnl::prop_kind::forward_training, kRelu, desc, 0.0f}, engine);
  const dnnl::eltwise_backward::primitive_desc plan({kRelu, desc, desc, 0.0f}, attributes(), engine, forward);
  return Primitive(engine, plan,
                   {{DNNL_ARG_DST, output}, {DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, gradient}});
}

}  // namespace

ReluMask::ReluMask(const dnnl::engine& engine, const dnnl::memory& output, const dnnl::memory& gradient)
    : backward_(make_backward(engine, output, gradient)) {}

}  // namespace tutti::cpu
