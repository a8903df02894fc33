#pragma once
// A small training state with every kind of content, the same whenever it is asked for. The files in
// tests/checkpoint/golden hold it; write_golden.cpp made them.

#include "tutti/checkpoint/train_state.hpp"

#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

inline NamedArray sample_array(std::string name, const Shape& shape, float first) {
  NamedArray array{.name = std::move(name), .shape = shape, .values = {}};
  for (std::int64_t i = 0; i < shape.elements(); ++i) array.values.push_back(first + 0.125f * static_cast<float>(i));
  return array;
}

// Zero of either sign, denormals, infinities, and NaNs with a payload.
inline NamedArray unusual_array(std::string name) {
  NamedArray array{.name = std::move(name), .shape = {7}, .values = {}};
  for (const std::uint32_t bits :
       {0x80000000u, 0x00000001u, 0x807FFFFFu, 0x7F800000u, 0xFF800000u, 0x7FC12345u, 0xFFC00001u}) {
    array.values.push_back(std::bit_cast<float>(bits));
  }
  return array;
}

// Arrays are in order of their names, as they are loaded.
inline TrainState sample_state() {
  return {.progress = {.epoch = 3,
                       .step_in_epoch = 5,
                       .step = 42,
                       .epoch_sums = {.loss_steps = 123456789, .correct = 70, .samples = 80, .not_finite = 1},
                       .epoch_seconds = 0.1},
          .parameters = {sample_array("conv1/bias", {2}, -1), sample_array("conv1/weight", {2, 1, 3, 3}, 0.5f),
                         unusual_array("odd/weight"), sample_array("stage1.block1.norm1/scale", {4}, 1)},
          .statistics = {sample_array("stage1.block1.norm1/mean", {4}, 0),
                         sample_array("stage1.block1.norm1/variance", {4}, 2)},
          .optimizer = {sample_array("velocity/conv1/bias", {2}, 0.25f),
                        sample_array("velocity/conv1/weight", {2, 1, 3, 3}, -0.5f)},
          .configuration = "model = \"lenet\"\nbatch-size = 16\n",
          .model = "[[layer]]\nname = \"conv1\"\n",
          .versions = "tutti 0.1.0",
          .data_digest = 0x0123456789ABCDEFu};
}

}  // namespace tutti
