#pragma once
// The tensors of a training state by group, for commands that tell of them.

#include "tutti/checkpoint/train_state.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct TensorGroup {
  const char* name;
  std::vector<NamedArray> TrainState::*arrays;
};
inline constexpr std::array kTensorGroups{
    TensorGroup{"parameters", &TrainState::parameters}, TensorGroup{"statistics", &TrainState::statistics},
    TensorGroup{"optimizer", &TrainState::optimizer}, TensorGroup{"exchange", &TrainState::exchange}};

// Where an element lies: "[3, 0, 1, 1]".
std::string place_text(const Shape& shape, std::int64_t element);

}  // namespace tutti
