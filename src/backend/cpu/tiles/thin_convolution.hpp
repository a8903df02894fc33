#pragma once
// A convolution with few values under its window (thin_kernels.hpp): any window, stride and padding, outputs that lie
// last or in blocks of 16. It has no way back to the input, which first layers do not take. Sums are cut by images,
// without regard to threads.

#include "backend/cpu/tiles/tiled_convolution.hpp"

namespace tutti::cpu {

// Null where the shape is another one.
template <class T>
std::shared_ptr<const TiledConvolution> make_thin(const TiledShape& shape);

}  // namespace tutti::cpu
