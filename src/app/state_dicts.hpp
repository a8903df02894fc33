#pragma once
// State dicts of PyTorch (.pt, .pth, .safetensors) as initial weights. tools/export, which is Python, makes checkpoints
// of them in the user's cache folder.

#include "tutti/base/log.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include <string>

namespace tutti {

bool is_state_dict(const std::string& path);

// The command that makes a checkpoint of this state dict, or this ONNX file, for users.
std::string conversion_command(const std::string& path);

// The checkpoint with the weights of this state dict of one of torchvision's networks; made now, or by an earlier run.
// Returns `path` if there is no program or no folder for that. Throws a checkpoint error with the program's reason, for
// example that PyTorch is missing. Runs another program: for rank 0 alone.
std::string checkpoint_of_state_dict(const std::string& path, const Log& log);

// Whether tools/export has made the checkpoint of a state dict with torchvision's names. The size and values of the
// images in it are then torchvision's usual ones, since a state dict has none.
bool is_of_state_dict(const LoadedCheckpoint& loaded);
// Who was trained, for a warning that goes on with "with" or "on".
std::string training_text(const LoadedCheckpoint& loaded);

}  // namespace tutti
