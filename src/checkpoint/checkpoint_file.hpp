#pragma once
// One training state as the bytes of HDF5 files and back. The format is described in
// tutti/checkpoint/checkpoint_store.hpp.

#include "tutti/checkpoint/train_state.hpp"
#include "tutti/storage/array_file.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// The version of the checkpoint format that this program writes, and the only one that it reads.
inline constexpr std::int32_t kCheckpointFormat = 2;
// Why a checkpoint of that format is refused; empty when it is not.
std::string fault_of_format(std::int64_t version);

// The arrays that the state holds, and all else. Built in `room`, as ArrayImage is.
StoredImage checkpoint_image(const TrainState& state, std::vector<std::byte> room = {});

// The state whose arrays are spread over these files. Throws input errors that name the file and what is wrong:
// something missing, an impossible count, a value that is not finite, a wrong digest.
TrainState state_of(std::span<const ArrayFile> files);

// That of its parameters, as printed while training.
std::uint64_t weights_digest(const TrainState& state);

}  // namespace tutti
