#include "confusion.hpp"

#include "tutti/base/utf8.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

namespace tutti {
namespace {

constexpr std::size_t kMostColumns = 20;  // of a matrix on the terminal
constexpr std::size_t kMostMistakes = 3;  // told of a class

}  // namespace

void Confusion::add(const ChunkScores& scores) {
  for (const SampleScore& score : scores.samples) {
    ++rows_[static_cast<std::size_t>(score.label)][static_cast<std::size_t>(score.predicted)];
  }
}

std::int64_t Confusion::count(std::size_t label, std::size_t predicted) const {
  const auto found = rows_[label].find(predicted);
  return found == rows_[label].end() ? 0 : found->second;
}

std::int64_t Confusion::samples(std::size_t label) const {
  std::int64_t sum = 0;
  for (const auto& [predicted, images] : rows_[label]) sum += images;
  return sum;
}

std::vector<std::size_t> Confusion::mistaken_for(std::size_t label) const {
  std::vector<std::size_t> others;
  for (const auto& [predicted, images] : rows_[label]) {
    if (predicted != label) others.push_back(predicted);
  }
  std::ranges::stable_sort(others, std::ranges::greater(), [&](std::size_t other) { return count(label, other); });
  return others;
}

std::string Confusion::text() const {
  std::size_t width = 5;
  for (std::size_t label = 0; label < classes(); ++label) width = std::max(width, shown_name(label).size());
  std::string text = fmt::format("{:<{}} {:>7} {:>7}  taken for\n", "class", width, "images", "acc");
  for (std::size_t label = 0; label < classes(); ++label) {
    const std::int64_t images = samples(label);
    const double accuracy = static_cast<double>(count(label, label)) / static_cast<double>(images);
    text += fmt::format("{:<{}} {:>7} {:>7}  {}\n", shown_name(label), width, images,
                        images == 0 ? "-" : fmt::format("{:.4f}", accuracy), mistakes_text(label));
  }
  return classes() <= kMostColumns ? text + "\n" + matrix_text(width) : text;
}

std::string Confusion::shown_name(std::size_t label) const { return printable(names_[label]); }

std::string Confusion::mistakes_text(std::size_t label) const {
  std::vector<std::size_t> others = mistaken_for(label);
  others.resize(std::min(others.size(), kMostMistakes));
  std::vector<std::string> words;
  for (const std::size_t other : others) words.push_back(fmt::format("{} {}", shown_name(other), count(label, other)));
  return fmt::format("{}", fmt::join(words, ", "));
}

// Columns go by their numbers, which rows have before their names.
std::string Confusion::matrix_text(std::size_t width) const {
  std::int64_t greatest = 0;
  for (const Row& row : rows_) {
    for (const auto& [predicted, images] : row) greatest = std::max(greatest, images);
  }
  const std::size_t digits = std::max<std::size_t>(3, fmt::formatted_size("{}", greatest) + 1);
  constexpr std::string_view kCorner = "is, taken for";
  const std::size_t first = std::max(width + 4, kCorner.size());
  std::string text = fmt::format("{:<{}}", kCorner, first);
  for (std::size_t predicted = 0; predicted < classes(); ++predicted) text += fmt::format("{:>{}}", predicted, digits);
  for (std::size_t label = 0; label < classes(); ++label) {
    text += fmt::format("\n{:>2}  {:<{}}", label, shown_name(label), first - 4);
    for (std::size_t predicted = 0; predicted < classes(); ++predicted) {
      text += fmt::format("{:>{}}", count(label, predicted), digits);
    }
  }
  return text + "\n";
}

}  // namespace tutti
