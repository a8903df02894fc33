#pragma once
// A data set's images in the memory of a GPU, and the kernel that makes batches of them.

#include "tutti/backend/image_store.hpp"

#include <memory>

namespace tutti::cuda {

// Null where the images would take more than half of the device's free memory, or are too wide for the kernel.
std::unique_ptr<ImageStore> hold_images(int device, const HeldImages& images);

}  // namespace tutti::cuda
