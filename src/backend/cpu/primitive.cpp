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

void Placed::place(const void* address) {
  // Setting a handle makes oneDNN clear the padding again, each time; primitives leave it clear by
  // themselves.
  if (memory_.get_data_handle() == address) return;
  memory_.set_data_handle(const_cast<void*>(address));
}

Primitive::Primitive(const dnnl::engine& engine, const dnnl::primitive_desc_base& plan, Arguments arguments)
    : primitive_(plan.get()),
      name_(plan.impl_info_str()),
      scratch_bytes_(plan.scratchpad_desc().get_size()),
      scratch_(engine, plan.scratchpad_desc()),
      arguments_(std::move(arguments)) {
  if (scratch_bytes_ > 0) arguments_.insert_or_assign(DNNL_ARG_SCRATCHPAD, scratch_.memory());
}

void Primitive::run(CpuStream& stream, std::source_location where) {
  check([&] { return fmt::format("running {}", name_); },
        [&] {
          if (scratch_bytes_ > 0) scratch_.place(stream.scratch(scratch_bytes_));
          primitive_.execute(stream.get(), arguments_);
        },
        where);
}

}  // namespace tutti::cpu
