#pragma once
// One training state as the bytes of HDF5 files and back. The format is described in
// tutti/checkpoint/checkpoint_store.hpp.

#include "tutti/checkpoint/train_state.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/image_arrays.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// The arrays that the state holds, and all else. Built in `room`, as ArrayImage is.
StoredImage checkpoint_image(const TrainState& state, std::vector<std::byte> room = {});

// The state whose arrays are shared out among these images. Throws input errors that name the image and what is wrong:
// something missing, an impossible count, a value that is not finite.
TrainState state_of(std::span<const ImageArrays> images);
// Likewise, through HDF5. Its digests are checked.
TrainState state_of(const ArrayFile& file);

// That of its parameters, as printed while training.
std::uint64_t weights_digest(const TrainState& state);

}  // namespace tutti
