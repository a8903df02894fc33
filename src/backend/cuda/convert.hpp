#pragma once
// Activations between the layout within the network and the plain one.

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/backend/layer.hpp"

#include <memory>

namespace tutti::cuda {

// `activation` is one within the network; `plain` is f32 in canonical order, in the device's memory. Asynchronous.
void to_plain(CudaStream& stream, const ActivationSpec& activation, const void* from, float* plain);
void from_plain(CudaStream& stream, const ActivationSpec& activation, const float* plain, void* to);

}  // namespace tutti::cuda
