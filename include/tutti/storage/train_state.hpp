#pragma once
// The complete state from which a run can resume bit-identically, in host memory and canonical layout. It does not
// depend on the number of ranks.

#include "tutti/backend/layer.hpp"
#include "tutti/base/shape.hpp"

#include <algorithm>
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

  double accuracy() const {
    return static_cast<double>(correct) / static_cast<double>(std::max<std::int64_t>(samples, 1));
  }
  friend bool operator==(const BestTest&, const BestTest&) = default;
};

// Sums over training samples. With class weights, their mean loss is the weighted one, to which the gradients belong.
struct TrainSums : LossSums {
  double weight = 0;  // the sum of the class weights of the samples' labels; 0 without class weights

  TrainSums() = default;
  TrainSums(const LossSums& sums, double weight_of_labels = 0) : LossSums(sums), weight(weight_of_labels) {}
  double mean_loss() const { return weight > 0 ? loss() / weight : LossSums::mean_loss(); }
  friend bool operator==(const TrainSums&, const TrainSums&) = default;
  friend TrainSums operator-(const TrainSums& one, const TrainSums& other) {
    return {static_cast<const LossSums&>(one) - static_cast<const LossSums&>(other), one.weight - other.weight};
  }
};

// The position of a run, after its last completed step.
struct TrainProgress {
  std::int64_t epoch = 0;             // completed epochs
  std::int64_t step_in_epoch = 0;     // completed steps of the current epoch
  std::int64_t step = 0;              // completed steps of the run
  std::int64_t skipped_steps = 0;     // of the completed steps of the run, those that changed no weight
  std::int64_t samples_in_epoch = 0;  // where the next step begins in the order of the current epoch's samples
  std::int64_t carried_over = 0;      // samples at the front of that order that earlier epochs left over
  std::int64_t planned_steps = 0;     // of the whole run, for the learning rate schedule
  double learning_rate = 0;           // of the last completed step
  std::int64_t seed = 0;
  std::int64_t parts = 1;         // of every batch
  TrainSums epoch_sums;           // of the completed steps of the current epoch
  std::int64_t redone_steps = 0;  // of the current epoch, those that were repeated on a coarser grid
  double epoch_seconds = 0;       // training time of the completed steps of the current epoch
  BestTest best;
  std::int64_t tests_since_best = 0;  // evaluations after it
  friend bool operator==(const TrainProgress&, const TrainProgress&) = default;
};

// What describes the run of a state, in checkpoints.
struct RunMetadata {
  std::string configuration;      // resolved, TOML
  std::string command_line{};     // of the process that saved it; informational
  std::string model;              // the network, TOML
  std::string versions;           // of the program and the libraries; informational
  std::string data{};             // image shape and classes of the training data; empty: unknown
  std::uint64_t data_digest = 0;  // of the training data
};

struct TrainState : RunMetadata {
  TrainProgress progress;
  std::vector<NamedArray> parameters;
  std::vector<NamedArray> statistics;
  std::vector<NamedArray> optimizer;
  std::vector<NamedArray> exchange{};  // the exchange's own state; empty if it has none
  std::vector<NamedArray> averages{};  // of parameters and statistics over time; empty if none are kept
  std::string choices{};               // algorithms that devices chose by measuring; empty if none did
  std::string metrics_hash{};          // of the last record of metrics.jsonl; saved in the manifest, never loaded
};

// The arrays of a state by group, in the order in which they are saved and listed.
struct ArrayGroup {
  const char* name;
  std::vector<NamedArray> TrainState::*arrays;
};
inline constexpr std::array kArrayGroups{
    ArrayGroup{"parameters", &TrainState::parameters}, ArrayGroup{"statistics", &TrainState::statistics},
    ArrayGroup{"optimizer", &TrainState::optimizer}, ArrayGroup{"exchange", &TrainState::exchange},
    ArrayGroup{"averages", &TrainState::averages}};
// Replaces parameters and statistics by their averages, if the state has any.
void use_averages(TrainState& state);

// Which of a checkpoint's files a rank writes, and so which arrays it needs. All but the largest states fit into one
// file, which rank 0 writes.
struct FileShard {
  int file = 0;
  int files = 1;
  friend bool operator==(const FileShard&, const FileShard&) = default;
};

}  // namespace tutti
