#pragma once
// The complete state from which a run can resume bit-identically, in host memory and canonical layout. It does not
// depend on the number of ranks.

#include "tutti/backend/layer.hpp"
#include "tutti/base/shape.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct NamedArray {
  std::string name;  // "conv1/weight"; optimizer arrays have their slot as a prefix: "velocity/conv1/weight"
  Shape shape;
  std::vector<float> values;
};
bool is_finite(const NamedArray& array);

// The evaluation with the most correct answers so far; the earliest of equals.
struct BestTest {
  std::int64_t step = -1;  // completed steps at that evaluation; -1: none yet
  std::int64_t correct = 0;
  std::int64_t samples = 0;
  friend bool operator==(const BestTest&, const BestTest&) = default;
};

struct TrainProgress {
  std::int64_t epoch = 0;             // completed epochs
  std::int64_t step_in_epoch = 0;     // completed steps of the current epoch
  std::int64_t step = 0;              // completed steps of the run
  std::int64_t skipped_steps = 0;     // steps among them that changed no weight
  std::int64_t samples_in_epoch = 0;  // samples of the epoch's order used by these steps; the next one begins there
  std::int64_t carried_over = 0;      // samples at the front of that order carried over from earlier epochs
  std::int64_t planned_steps = 0;     // total steps of the run, for learning rate schedules
  double learning_rate = 0;           // of the last step
  std::int64_t seed = 0;
  std::int64_t parts = 1;
  LossSums epoch_sums;            // of the steps of the current epoch
  std::int64_t redone_steps = 0;  // of the current epoch, as in EpochReport
  double epoch_seconds = 0;       // training time of these steps
  BestTest best;
  friend bool operator==(const TrainProgress&, const TrainProgress&) = default;
};

struct TrainState {
  TrainProgress progress;
  std::vector<NamedArray> parameters;
  std::vector<NamedArray> statistics;
  std::vector<NamedArray> optimizer;
  std::vector<NamedArray> exchange{};  // the exchange's own state; empty if it has none
  std::string configuration;           // resolved, TOML
  std::string command_line{};          // of the process that saved it; informational
  std::string model;                   // the network, TOML
  std::string versions;                // of the program and the libraries; informational
  std::string choices{};               // algorithms that devices chose by measuring; empty if none did
  std::string data{};                  // image shape and classes of the training data; empty: unknown
  std::uint64_t data_digest = 0;       // of the training data
};

// The arrays of a state by group, in the order in which they are saved and listed.
struct ArrayGroup {
  const char* name;
  std::vector<NamedArray> TrainState::*arrays;
};
inline constexpr std::array kArrayGroups{
    ArrayGroup{"parameters", &TrainState::parameters}, ArrayGroup{"statistics", &TrainState::statistics},
    ArrayGroup{"optimizer", &TrainState::optimizer}, ArrayGroup{"exchange", &TrainState::exchange}};

// Which of a checkpoint's files a rank writes, and so which arrays it needs. All but the largest states fit into one
// file, which rank 0 writes.
struct FileShard {
  int file = 0;
  int files = 1;
  friend bool operator==(const FileShard&, const FileShard&) = default;
};

}  // namespace tutti
