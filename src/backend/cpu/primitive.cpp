#include "backend/cpu/primitive.hpp"

#include "backend/cpu/conversion.hpp"
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

Reorder::Reorder(const dnnl::memory& from, const dnnl::memory& to) : from_(from), to_(to) {
  if (is_activation(from.get_desc()) && is_activation(to.get_desc())) return;
  const dnnl::engine engine = from.get_engine();
  const dnnl::reorder::primitive_desc plan(engine, from.get_desc(), engine, to.get_desc(), attributes());
  primitive_.emplace(engine, plan, Arguments{{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

void Reorder::run(CpuStream& stream) {
  if (primitive_) return primitive_->run(stream);
  convert_activation(stream, {from_.get_desc(), from_.get_data_handle()}, {to_.get_desc(), to_.get_data_handle()});
}

Staged::Staged(const dnnl::engine& engine, const Desc& given, const Desc& wanted, Use use)
    : given_(unbound(engine, given)), staged_(given == wanted ? given_ : dnnl::memory(wanted, engine)) {
  if (given == wanted) return;
  const bool reads = use == Use::read;
  reorder_.emplace(reads ? given_ : staged_, reads ? staged_ : given_);
}

void Staged::load(CpuStream& stream, const void* address) {
  tutti::cpu::bind(given_, address);
  if (reorder_) reorder_->run(stream);
}

void Staged::deliver(CpuStream& stream) {
  if (reorder_) reorder_->run(stream);
}

}  // namespace tutti::cpu
