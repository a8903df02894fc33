#pragma once
// How often samples of each class were taken for each: the confusion matrix, and what is told of it.

#include "tutti/train/sample_scores.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

class Confusion {
 public:
  explicit Confusion(std::vector<std::string> names) : names_(std::move(names)), counts_(classes() * classes()) {}

  void add(const ChunkScores& scores);

  std::size_t classes() const { return names_.size(); }
  const std::string& name(std::size_t of_class) const { return names_[of_class]; }
  // Of the samples of class `label`, those taken for class `predicted`.
  std::int64_t count(std::size_t label, std::size_t predicted) const { return counts_[label * classes() + predicted]; }
  std::span<const std::int64_t> row(std::size_t label) const {
    return std::span(counts_).subspan(label * classes(), classes());
  }
  std::int64_t samples(std::size_t label) const;

  // A line for each class: images, accuracy, and what else it is most often taken for. Where they fit a terminal, all
  // counts besides, a row for each label.
  std::string text() const;

 private:
  std::string mistakes_text(std::size_t label) const;
  std::string matrix_text(std::size_t width) const;

  std::vector<std::string> names_;
  std::vector<std::int64_t> counts_;
};

}  // namespace tutti
