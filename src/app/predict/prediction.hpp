#pragma once
// What is told of one image: its file or number, and the classes that the network takes it for.

#include "tutti/train/sample_scores.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

struct RankedClass {
  std::size_t number = 0;
  double probability = 0;
};

struct Prediction {
  std::string file;         // empty: it has none
  std::int64_t number = 0;  // in its set
  std::string set{};
  std::optional<std::size_t> label{};
  std::vector<RankedClass> best{};      // the most probable first; none where the image could not be read
  std::vector<double> probabilities{};  // of all classes, where they are wanted
  std::string problem{};                // why it could not be read
};

// The `count` most probable classes of a sample, of equals those of the lower numbers first.
std::vector<RankedClass> best_classes(const ChunkScores& scores, std::size_t sample, std::size_t count);

// Which columns there are, in every row.
struct PredictionColumns {
  std::vector<std::string> class_names;
  std::size_t best = 1;
  bool sets = false;
  bool labels = false;
  bool probabilities = false;
  bool problems = false;
  bool safe = false;  // of the CSV: without formulas and control characters
};

// Takes predictions in their order; what it makes of them is there after finish() alone.
class PredictionSink {
 public:
  virtual ~PredictionSink() = default;
  virtual void add(const Prediction& prediction) = 0;
  virtual void finish() = 0;
};

}  // namespace tutti
