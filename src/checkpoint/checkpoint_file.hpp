#pragma once
// One training state as the bytes of one HDF5 file. Reading it back is load_checkpoint's, in
// tutti/checkpoint/checkpoint_store.hpp, where the format is described.

#include "tutti/checkpoint/train_state.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tutti {

std::vector<std::byte> checkpoint_image(const TrainState& state);

// Only the progress of a checkpoint file, whose bytes are taken on trust. Throws what load_checkpoint throws.
TrainProgress load_progress(const std::string& path);

}  // namespace tutti
