#pragma once
// Everything that a run needs in order to go on as if nothing had happened, in host memory and canonical layout,
// without rank numbers.

#include "tutti/backend/layer.hpp"
#include "tutti/base/shape.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct NamedArray {
  std::string name;  // "conv1/weight"; optimizer arrays carry their slot in front: "velocity/conv1/weight"
  Shape shape;
  std::vector<float> values;
};

struct TrainProgress {
  std::int64_t epoch = 0;          // whole epochs done
  std::int64_t step_in_epoch = 0;  // steps done of the epoch that is under way
  std::int64_t step = 0;           // steps done in all
  LossSums epoch_sums;             // of the steps of the epoch under way
  double epoch_seconds = 0;        // training time of these steps
  friend bool operator==(const TrainProgress&, const TrainProgress&) = default;
};

struct TrainState {
  TrainProgress progress;
  std::vector<NamedArray> parameters;
  std::vector<NamedArray> statistics;
  std::vector<NamedArray> optimizer;
  std::vector<NamedArray> exchange{};  // what the exchange knows from the steps before; empty where it knows nothing
  std::string configuration;           // resolved, TOML
  std::string model;                   // the network, TOML
  std::string versions;                // of the program and the libraries, for people
  std::string choices{};               // what processors chose by measuring; empty where they do not
  std::uint64_t data_digest = 0;       // of the training set
};

}  // namespace tutti
