#include "backend/cpu/staging.hpp"

#include "backend/cpu/primitive.hpp"

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

Primitive make_reorder(const dnnl::engine& engine, const dnnl::memory& from, const dnnl::memory& to) {
  const dnnl::reorder::primitive_desc plan(engine, from.get_desc(), engine, to.get_desc(), attributes());
  return Primitive(engine, plan, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

StagedInput::StagedInput(const dnnl::engine& engine, const Desc& given, const Desc& wanted)
    : given_(engine, given), staged_(given == wanted ? given_.memory() : dnnl::memory(wanted, engine)) {
  if (given != wanted) reorder_ = make_reorder(engine, given_.memory(), staged_);
}

void StagedInput::load(CpuStream& stream, const void* address) {
  given_.place(address);
  if (reorder_) reorder_->run(stream);
}

StagedOutput::StagedOutput(const dnnl::engine& engine, const Desc& given, const Desc& wanted)
    : given_(engine, given), staged_(given == wanted ? given_.memory() : dnnl::memory(wanted, engine)) {
  if (given != wanted) reorder_ = make_reorder(engine, staged_, given_.memory());
}

void StagedOutput::deliver(CpuStream& stream) {
  if (reorder_) reorder_->run(stream);
}

ReluMask::ReluMask(const dnnl::engine& engine, const dnnl::memory& output, const dnnl::memory& gradient)
    : backward_(make_backward(engine, output, gradient)) {}

}  // namespace tutti::cpu
