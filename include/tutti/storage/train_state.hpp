#pragma once
// Everything that a run needs in order to go on as if nothing had happened, in host memory and canonical layout,
// without rank numbers.

#include "tutti/backend/layer.hpp"
#include "tutti/base/shape.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct NamedArray {
  std::string name;  // "conv1/weight"; optimizer arrays carry their slot in front: "velocity/conv1/weight"
  Shape shape;
  std::vector<float> values;
};
bool is_finite(const NamedArray& array);

// The evaluation with the most correct answers so far, the earliest of several.
struct BestTest {
  std::int64_t step = -1;  // after so many steps; -1: none yet
  std::int64_t correct = 0;
  std::int64_t samples = 0;
  friend bool operator==(const BestTest&, const BestTest&) = default;
};

struct TrainProgress {
  std::int64_t epoch = 0;             // whole epochs done
  std::int64_t step_in_epoch = 0;     // steps done of the epoch that is under way
  std::int64_t step = 0;              // steps done in all
  std::int64_t skipped_steps = 0;     // of them, those that have changed nothing
  std::int64_t samples_in_epoch = 0;  // of the epoch's order, taken by these steps: where the next one begins
  std::int64_t carried_over = 0;      // samples at the front of that order that earlier epochs dealt to no step
  std::int64_t planned_steps = 0;     // what a schedule over the whole run goes by
  double learning_rate = 0;           // of the last step
  std::int64_t seed = 0;
  std::int64_t parts = 1;
  LossSums epoch_sums;            // of the steps of the epoch under way
  std::int64_t redone_steps = 0;  // of them, as EpochReport has it
  double epoch_seconds = 0;       // training time of these steps
  BestTest best;
  friend bool operator==(const TrainProgress&, const TrainProgress&) = default;
};

struct TrainState {
  TrainProgress progress;
  std::vector<NamedArray> parameters;
  std::vector<NamedArray> statistics;
  std::vector<NamedArray> optimizer;
  std::vector<NamedArray> exchange{};  // what the exchange knows from the steps before; empty where it knows nothing
  std::string configuration;           // resolved, TOML
  std::string command_line{};          // of the start that saved it, for people
  std::string model;                   // the network, TOML
  std::string versions;                // of the program and the libraries, for people
  std::string choices{};               // what processors chose by measuring; empty where they do not
  std::string data{};                  // what images and classes the network was trained on; empty: nobody told
  std::uint64_t data_digest = 0;       // of the training set
};

// The arrays of a state by group, in the order in which they are saved and told of.
struct ArrayGroup {
  const char* name;
  std::vector<NamedArray> TrainState::*arrays;
};
inline constexpr std::array kArrayGroups{
    ArrayGroup{"parameters", &TrainState::parameters}, ArrayGroup{"statistics", &TrainState::statistics},
    ArrayGroup{"optimizer", &TrainState::optimizer}, ArrayGroup{"exchange", &TrainState::exchange}};

// Which of a checkpoint's files some rank makes, and so which arrays it needs. One file holds all but the largest
// states, and is rank 0's.
struct FileShare {
  int file = 0;
  int files = 1;
  friend bool operator==(const FileShare&, const FileShare&) = default;
};

}  // namespace tutti
