#pragma once
// A small training state with every kind of content, the same in every call. The files in
// tests/storage/golden/format-2, written by write_golden.cpp, contain it.

#include "tutti/storage/train_state.hpp"

#include <algorithm>
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

// Zero of either sign, denormals, and the largest of either sign.
inline NamedArray unusual_array(std::string name) {
  NamedArray array{.name = std::move(name), .shape = {6}, .values = {}};
  for (const std::uint32_t bits : {0x80000000u, 0x00000000u, 0x00000001u, 0x807FFFFFu, 0x7F7FFFFFu, 0xFF7FFFFFu}) {
    array.values.push_back(std::bit_cast<float>(bits));
  }
  return array;
}

// Arrays are in order of their names, as they are loaded.
inline TrainState sample_state() {
  TrainState state;
  state.progress = {.epoch = 3,
                    .step_in_epoch = 5,
                    .step = 42,
                    .samples_in_epoch = 80,
                    .carried_over = 3,
                    .planned_steps = 260,
                    .learning_rate = 0.05,
                    .seed = -7,
                    .parts = 4,
                    .epoch_sums = LossSums{.loss_quanta = 123456789, .correct = 70, .samples = 80, .not_finite = 0},
                    .epoch_seconds = 0.1,
                    .best = {.step = 0, .correct = 90, .samples = 100}};
  state.parameters = {sample_array("conv1/bias", {2}, -1), sample_array("conv1/weight", {2, 1, 3, 3}, 0.5f),
                      unusual_array("odd/weight"), sample_array("stage1.block1.norm1/scale", {4}, 1)};
  state.statistics = {sample_array("stage1.block1.norm1/mean", {4}, 0),
                      sample_array("stage1.block1.norm1/variance", {4}, 2)};
  state.optimizer = {sample_array("velocity/conv1/bias", {2}, 0.25f),
                     sample_array("velocity/conv1/weight", {2, 1, 3, 3}, -0.5f)};
  state.exchange = {sample_array("exact/levels", {6}, -7)};
  state.choices = "conv 1x28x28 engine 4\n";
  static_cast<RunMetadata&>(state) = {.configuration = "model = \"sample\"\nbatch-size = 16\n",
                                      .command_line = "trainer --model sample.toml",
                                      .model = "name = \"sample\"\n\n[[layer]]\nname = \"conv1\"\n",
                                      .versions = "tutti 0.2.0; déjà vu",
                                      .data_digest = 0x0123456789ABCDEFu};
  return state;
}

// The same state after another number of steps.
inline TrainState state_at(std::int64_t step) {
  TrainState state = sample_state();
  state.progress.step = step;
  state.progress.step_in_epoch = std::min(step, state.progress.step_in_epoch);
  state.progress.best.step = std::min(step, state.progress.best.step);
  return state;
}

}  // namespace tutti
