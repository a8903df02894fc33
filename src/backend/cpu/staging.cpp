#include "backend/cpu/staging.hpp"

namespace tutti::cpu {

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

}  // namespace tutti::cpu
