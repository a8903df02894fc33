#pragma once
// State dicts of PyTorch (.pt, .pth, .safetensors) as initial weights. tools/export, which is Python, makes checkpoints
// of them in the user's cache folder.

#include "tutti/base/log.hpp"

#include <string>

namespace tutti {

bool is_state_dict(const std::string& path);

// The command that makes a checkpoint of this state dict, or this ONNX file, for users.
std::string conversion_command(const std::string& path);

// The checkpoint with the weights of this state dict of one of torchvision's networks; made now, or by an earlier run.
// If that is not possible, for example without PyTorch, returns `path` after a warning. Runs another program: for rank
// 0 alone.
std::string checkpoint_of_state_dict(const std::string& path, const Log& log);

}  // namespace tutti
