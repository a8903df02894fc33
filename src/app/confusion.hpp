#pragma once
// How often samples of each class were taken for each: the confusion matrix, and what is told of it.

#include "tutti/train/sample_scores.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

class Confusion {
 public:
  // What samples of one class were taken for, and how often. Only what occurs is kept: classes may be thousands.
  using Row = std::map<std::size_t, std::int64_t>;

  explicit Confusion(std::vector<std::string> names) : names_(std::move(names)), rows_(names_.size()) {}

  void add(const ChunkScores& scores);

  std::size_t classes() const { return names_.size(); }
  const std::string& name(std::size_t of_class) const { return names_[of_class]; }
  const Row& row(std::size_t label) const { return rows_[label]; }
  // Of the samples of class `label`, those taken for class `predicted`.
  std::int64_t count(std::size_t label, std::size_t predicted) const;
  std::int64_t samples(std::size_t label) const;
  // What else it is taken for, the most frequent first.
  std::vector<std::size_t> mistaken_for(std::size_t label) const;

  // A line for each class: images, accuracy, and what else it is most often taken for. Where they fit a terminal, all
  // counts besides, a row for each label.
  std::string text() const;

 private:
  std::string shown_name(std::size_t label) const;
  std::string mistakes_text(std::size_t label) const;
  std::string matrix_text(std::size_t width) const;

  std::vector<std::string> names_;
  std::vector<Row> rows_;
};

}  // namespace tutti
