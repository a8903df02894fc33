#pragma once
// A layer that is handed plain activations: converts them for a layer within the network, and its gradients back. So no
// other layer knows of plain ones.

#include "tutti/backend/layer.hpp"

#include "backend/cuda/processor.hpp"

#include <functional>
#include <memory>

namespace tutti::cuda {

// `make` prepares the layer for the request it is given, that has no plain activations.
std::unique_ptr<Layer> make_converting_layer(
    const Processor& processor, const LayerRequest& request,
    const std::function<std::unique_ptr<Layer>(const LayerRequest& within)>& make);

}  // namespace tutti::cuda
