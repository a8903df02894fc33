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

class Confusion {
 public:
  // The number of samples of one class by predicted class, without zeros: there may be thousands of classes.
  using Row = std::map<std::size_t, std::int64_t>;

  explicit Confusion(std::vector<std::string> names) : names_(std::move(names)), rows_(names_.size()) {}

  void add(const ChunkScores& scores);

  std::size_t classes() const { return names_.size(); }
  const std::string& name(std::size_t of_class) const { return names_[of_class]; }
  const Row& row(std::size_t label) const { return rows_[label]; }
  // The number of samples of class `label` that were classified as `predicted`.
  std::int64_t count(std::size_t label, std::size_t predicted) const;
  std::int64_t samples(std::size_t label) const;

  // One line per class: images, accuracy, and the most frequent wrong predictions. If the whole matrix fits into a
  // terminal, it follows, with a row for each label.
  std::string text() const;

 private:
  std::string shown_name(std::size_t label) const;
  std::string mistakes_text(std::size_t label) const;
  std::string matrix_text(std::size_t width) const;

  std::vector<std::string> names_;
  std::vector<Row> rows_;
};

struct Mistake {
  std::int64_t sample = 0;
  std::size_t label = 0;
  std::size_t predicted = 0;
  double probability = 0;           // of the predicted class
  double probability_of_label = 0;  // of the true class
};

class Mistakes {
 public:
  explicit Mistakes(std::size_t max_count) : max_count_(max_count) {}

  void add(const ChunkScores& scores);
  // At most `max_count` of them, the most confident first.
  std::vector<Mistake> sorted() const;

 private:
  std::size_t max_count_;
  std::vector<Mistake> heap_;  // the least confident first
};

}  // namespace tutti
