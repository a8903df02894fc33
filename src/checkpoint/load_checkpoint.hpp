#pragma once
// Whether a checkpoint is, byte for byte, what its manifest says: asked before anything in it is believed.

#include "tutti/checkpoint/train_state.hpp"
#include "tutti/storage/array_file.hpp"

#include "manifest.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tutti {

struct CheckpointBytes {
  std::vector<std::byte> manifest;
  std::vector<std::vector<std::byte>> images;  // of its files, in order
};

// What proves this image, which holds a share of the state.
Manifest manifest_of(const TrainState& state, const StoredImage& image, std::string sha256, FileShare share = {});

// Where the manifest of a checkpoint's first file lies.
std::string manifest_path(const std::string& checkpoint_path);
// Or may have: where nobody can say, it is not to be read without.
bool has_manifest(const std::string& checkpoint_path);

// Reads manifest and files; sizes and checksums are right. Throws a checkpoint error that says what is wrong and calls
// for no name of the file, or an io error where the system cannot read.
CheckpointBytes read_checkpoint_bytes(const std::string& checkpoint_path);
// What such bytes hold. Throws likewise when they, though undamaged, do not make a state, or not that of the manifest.
TrainState state_of(const CheckpointBytes& bytes, const std::string& checkpoint_path);

}  // namespace tutti
