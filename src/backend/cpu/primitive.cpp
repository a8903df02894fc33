#include "backend/cpu/primitive.hpp"

#include "backend/cpu/library.hpp"

#include <string_view>
#include <utility>

namespace tutti::cpu {

dnnl::primitive_attr attributes(bool relu) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
  if (!relu) return attributes;
  dnnl::post_ops after;
  append_relu(after);
  attributes.set_post_ops(after);
  return attributes;
}

dnnl::prop_kind forward_kind(LayerMode mode) {
  return mode == LayerMode::training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
}

bool is_compiled(const dnnl::primitive_desc_base& plan) {
  return !std::string_view(plan.impl_info_str()).starts_with("ref");
}

bool is_direct(const dnnl::primitive_desc_base& plan) {
  return is_compiled(plan) && std::string_view(plan.impl_info_str()).find("gemm:") == std::string_view::npos;
}

dnnl::memory unbound(const dnnl::engine& engine, const Desc& desc) { return {desc, engine, DNNL_MEMORY_NONE}; }

void bind(const dnnl::memory& memory, const void* address) {
  // Setting a handle makes oneDNN zero the padding each time, although primitives keep it zero.
  if (memory.get_data_handle() != address) memory.set_data_handle(const_cast<void*>(address));
}

Primitive::Primitive(const dnnl::engine& engine, const dnnl::primitive_desc_base& plan, Arguments arguments)
    : primitive_(plan.get()),
      name_(plan.impl_info_str()),
      scratch_bytes_(plan.scratchpad_desc().get_size()),
      scratch_(unbound(engine, plan.scratchpad_desc())),
      arguments_(std::move(arguments)) {
  if (scratch_bytes_ > 0) arguments_.insert_or_assign(DNNL_ARG_SCRATCHPAD, scratch_);
}

void Primitive::run(CpuStream& stream, std::source_location where) {
  check([&] { return fmt::format("running {}", name_); },
        [&] {
          if (scratch_bytes_ > 0) bind(scratch_, stream.scratch(scratch_bytes_));
          primitive_.execute(stream.get(), arguments_);
        },
        where);
}

Primitive make_reorder(const dnnl::memory& from, const dnnl::memory& to) {
  const dnnl::engine engine = from.get_engine();
  const dnnl::reorder::primitive_desc plan(engine, from.get_desc(), engine, to.get_desc(), attributes());
  return Primitive(engine, plan, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

Staged::Staged(const dnnl::engine& engine, const Desc& given, const Desc& wanted, Use use)
    : given_(unbound(engine, given)), staged_(given == wanted ? given_ : dnnl::memory(wanted, engine)) {
  if (given == wanted) return;
  reorder_ = use == Use::read ? make_reorder(given_, staged_) : make_reorder(staged_, given_);
}

void Staged::load(CpuStream& stream, const void* address) {
  tutti::cpu::bind(given_, address);
  if (reorder_) reorder_->run(stream);
}

void Staged::deliver(CpuStream& stream) {
  if (reorder_) reorder_->run(stream);
}

Primitive make_relu_mask(const dnnl::memory& output, const dnnl::memory& gradient) {
  const dnnl::engine engine = output.get_engine();
  constexpr auto kRelu = dnnl::algorithm::eltwise_relu_use_dst_for_bwd;
  const Desc desc = output.get_desc();
  const auto forward = make_plan<dnnl::eltwise_forward>({engine, {}}, dnnl::prop_kind::forward_training, kRelu, desc,
                                                        OneDnn3Only{desc}, 0.0f);
  const auto plan = make_backward_plan<dnnl::eltwise_backward>({engine, attributes()}, forward, kRelu, desc,
                                                               OneDnn3Only{desc}, desc, 0.0f);
  return Primitive(engine, plan,
                   {{DNNL_ARG_DST, output}, {DNNL_ARG_DIFF_DST, gradient}, {DNNL_ARG_DIFF_SRC, gradient}});
}

}  // namespace tutti::cpu
