#include "backend/cpu/layer_loops.hpp"

#include "backend/cpu/processor.hpp"

#include <cstring>

namespace tutti::cpu {
namespace {

constexpr std::int64_t kRunLength = 64;

#define TUTTI_LOOPS "backend/cpu/layer_loops.inc"
#include TUTTI_INSTRUCTION_SETS
#undef TUTTI_LOOPS

template <class T>
void sum_gradients(const LayerBackward& pass, std::size_t bytes, const void* of_relu) {
  const std::vector<T*> gradients = typed_gradients<T>(pass);
  layer_loops<T>().sum_gradients(
      {static_cast<std::int64_t>(bytes / sizeof(T)), gradients, static_cast<const T*>(of_relu), nullptr});
}

}  // namespace

template <class T>
const LayerLoops<T>& layer_loops() {
  return TUTTI_WIDEST(kKernels<T>);
}

template const LayerLoops<float>& layer_loops();
template const LayerLoops<Bf16>& layer_loops();

void sum_output_gradients(const LayerBackward& pass, const Layout& output, const void* of_relu) {
  if (pass.output_gradients.size() == 1 && of_relu == nullptr) return;
  output.is_bf16() ? sum_gradients<Bf16>(pass, output.bytes(), of_relu)
                   : sum_gradients<float>(pass, output.bytes(), of_relu);
}

}  // namespace tutti::cpu
