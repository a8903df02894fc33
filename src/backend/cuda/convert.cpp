#include "backend/cuda/convert.hpp"

#include "backend/cuda/convert_kernels.hpp"
#include "backend/cuda/native.hpp"

namespace tutti::cuda {

void to_plain(CudaStream& stream, const ActivationSpec& activation, const void* from, float* plain) {
  launch_to_plain(native(stream), layout_of(activation), format_of(activation).type(), from, plain);
}

void from_plain(CudaStream& stream, const ActivationSpec& activation, const float* plain, void* to) {
  launch_from_plain(native(stream), layout_of(activation), format_of(activation).type(), plain, to);
}

}  // namespace tutti::cuda
