#pragma once
// Convolutions and linear layers by our own loops (tiles/tiled_convolution.hpp), which give the same bits with all
// instruction sets: the layouts of activations, too, depend only on the shapes.

#include "backend/cpu/layers.hpp"

namespace tutti::cpu {

std::unique_ptr<Layer> make_tiled(const Processor& processor, const Conv2dSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make_tiled(const Processor& processor, const LinearSpec& spec, const LayerRequest& request);

// Throws unless the pass has the gradients of the weights and, if there is one, of the bias.
void require_gradients(const LayerBackward& pass, bool bias);

}  // namespace tutti::cpu
