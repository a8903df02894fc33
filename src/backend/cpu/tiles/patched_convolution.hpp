#pragma once
// A convolution by patches (patch_kernels.hpp): 5x5 windows that move by one, over any number of channels that lie last
// or in blocks of 16. Sums are cut without regard to threads.

#include "backend/cpu/tiles/tiled_convolution.hpp"

namespace tutti::cpu {

// Null where the shape is another one, or oneDNN the faster way.
template <class T>
std::shared_ptr<const TiledConvolution> make_patched(const TiledShape& shape);

}  // namespace tutti::cpu
