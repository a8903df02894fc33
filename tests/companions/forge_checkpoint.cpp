// Forges a checkpoint for forged_runs_test.py, with all checksums as the program would have written them:
//
//   forge_checkpoint CHECKPOINT OPTIONS POSITION NUDGE METRICS_HASH FOLDER
//
// The arrays and sums are those of CHECKPOINT, with NUDGE added to the first weight. It claims the options, data and
// seed of the checkpoint OPTIONS, and the number of steps of POSITION.

#include "tutti/base/error.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include <fmt/format.h>

#include <span>
#include <string>

int main(int argc, char** argv) try {
  using namespace tutti;
  const std::span arguments(argv, static_cast<std::size_t>(argc));
  if (arguments.size() != 7) return 64;
  TrainState state = load_checkpoint(arguments[1]).state;
  const TrainState options = load_checkpoint(arguments[2]).state;
  const TrainProgress position = load_checkpoint(arguments[3]).state.progress;
  state.configuration = options.configuration;
  state.command_line = options.command_line;
  state.data = options.data;
  state.data_digest = options.data_digest;
  state.progress.seed = options.progress.seed;
  state.progress.step = position.step;
  state.progress.epoch = position.epoch;
  state.progress.step_in_epoch = position.step_in_epoch;
  state.progress.samples_in_epoch = position.samples_in_epoch;
  state.progress.learning_rate = position.learning_rate;
  state.parameters.front().values.front() += std::stof(arguments[4]);
  state.metrics_hash = arguments[5];
  CheckpointStore(arguments[6]).save(state);
  return 0;
} catch (const tutti::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
