#include "backend/cpu/gradient_sum.hpp"

#include "backend/cpu/channel_kernels.hpp"

namespace tutti::cpu {
namespace {

template <class T>
void gather(const LayerBackward& pass, std::int64_t elements) {
  const std::vector<T*> gradients = gradients_of<T>(pass);
  channel_kernels<T>().gather({elements, gradients, nullptr, nullptr});
}

}  // namespace

void sum_output_gradients(const LayerBackward& pass, const Desc& output) {
  if (pass.output_gradients.size() == 1) return;
  const std::size_t bytes = output.get_size();
  if (is_bf16(output)) return gather<Bf16>(pass, static_cast<std::int64_t>(bytes / sizeof(Bf16)));
  gather<float>(pass, static_cast<std::int64_t>(bytes / sizeof(float)));
}

}  // namespace tutti::cpu
