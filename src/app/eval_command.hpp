#pragma once
// The confusion matrix and the most confident mistakes, which trainer eval reports in addition to loss and accuracy.

#include "tutti/train/evaluation.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

struct Confusion {
  explicit Confusion(std::vector<std::string> class_names) : names(std::move(class_names)), rows(names.size()) {}

  void add(const ChunkScores& scores);
  // The number of samples of class `label` that were classified as `predicted`.
  std::int64_t count(std::size_t label, std::size_t predicted) const;
  std::int64_t samples(std::size_t label) const;
  // One line per class: images, accuracy, and the most frequent wrong predictions. If the whole matrix fits into a
  // terminal, it follows, with a row for each label.
  std::string text() const;

  std::vector<std::string> names;
  // By label, the number of samples by predicted class, without zeros: there may be thousands of classes.
  std::vector<std::map<std::size_t, std::int64_t>> rows;
};

struct Mistake {
  std::int64_t sample = 0;
  std::size_t label = 0;
  std::size_t predicted = 0;
  double probability = 0;           // of the predicted class
  double probability_of_label = 0;  // of the true class
};

// Adds those of these scores, and keeps at most `max_count`, the most confident first.
void add_mistakes(std::vector<Mistake>& mistakes, const ChunkScores& scores, std::size_t max_count);

}  // namespace tutti
