#include "backend/cpu/layer_loops.hpp"

#include "backend/cpu/library.hpp"

#include <cstring>

namespace tutti::cpu {
namespace {

constexpr std::int64_t kRunLength = 64;

#define TUTTI_LOOPS "backend/cpu/layer_loops.inc"
#include "backend/cpu/instruction_sets.inc"
#undef TUTTI_LOOPS

template <class T>
void sum_gradients(const LayerBackward& pass, std::int64_t elements) {
  const std::vector<T*> gradients = typed_gradients<T>(pass);
  layer_loops<T>().sum_gradients({elements, gradients, nullptr, nullptr});
}

}  // namespace

template <class T>
const LayerLoops<T>& layer_loops() {
  return for_this_processor(avx512::kKernels<T>, avx2::kKernels<T>, generic::kKernels<T>);
}

template const LayerLoops<float>& layer_loops();
template const LayerLoops<Bf16>& layer_loops();

void sum_output_gradients(const LayerBackward& pass, const Desc& output) {
  if (pass.output_gradients.size() == 1) return;
  const std::size_t bytes = output.get_size();
  if (is_bf16(output)) return sum_gradients<Bf16>(pass, static_cast<std::int64_t>(bytes / sizeof(Bf16)));
  sum_gradients<float>(pass, static_cast<std::int64_t>(bytes / sizeof(float)));
}

}  // namespace tutti::cpu
