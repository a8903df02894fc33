#include "evaluation_report.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"
#include "tutti/storage/whole_file.hpp"

#include "pictures.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <tuple>

namespace tutti {
namespace {

constexpr std::size_t kMostColumns = 20;      // of a matrix on the terminal
constexpr std::size_t kMostWrongClasses = 3;  // in the line of a class
constexpr std::int64_t kMostPixels = 160;     // of a picture's side

bool is_more_confident(const Mistake& a, const Mistake& b) {
  return std::tuple(-a.probability, a.probability_of_label, a.sample) <
         std::tuple(-b.probability, b.probability_of_label, b.sample);
}

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

std::string Confusion::text() const {
  std::size_t width = 5;
  for (std::size_t label = 0; label < classes(); ++label) width = std::max(width, shown_name(label).size());
  std::string text = fmt::format("{:<{}} {:>7} {:>7}  mistaken for\n", "class", width, "images", "acc");
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
  std::vector<std::size_t> others;
  for (const auto& [predicted, images] : row(label)) {
    if (predicted != label) others.push_back(predicted);
  }
  std::ranges::stable_sort(others, std::ranges::greater(), [&](std::size_t other) { return count(label, other); });
  others.resize(std::min(others.size(), kMostWrongClasses));
  std::vector<std::string> words;
  for (const std::size_t other : others) words.push_back(fmt::format("{} {}", shown_name(other), count(label, other)));
  return fmt::format("{}", fmt::join(words, ", "));
}

// Columns are headed by class numbers, which stand before the names in the rows.
std::string Confusion::matrix_text(std::size_t width) const {
  std::int64_t greatest = 0;
  for (const Row& row : rows_) {
    for (const auto& [predicted, images] : row) greatest = std::max(greatest, images);
  }
  const std::size_t digits = std::max<std::size_t>(3, fmt::formatted_size("{}", greatest) + 1);
  constexpr std::string_view kCorner = "true, predicted";
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

void Mistakes::add(const ChunkScores& scores) {
  for (std::size_t i = 0; i < scores.samples.size(); ++i) {
    const SampleScore& score = scores.samples[i];
    if (score.label == score.predicted) continue;
    const auto label = static_cast<std::size_t>(score.label);
    const auto predicted = static_cast<std::size_t>(score.predicted);
    heap_.push_back({.sample = scores.first + static_cast<std::int64_t>(i),
                     .label = label,
                     .predicted = predicted,
                     .probability = scores.probability(i, predicted),
                     .probability_of_label = scores.probability(i, label)});
    std::ranges::push_heap(heap_, is_more_confident);
    if (heap_.size() <= most_) continue;
    std::ranges::pop_heap(heap_, is_more_confident);
    heap_.pop_back();
  }
}

std::vector<Mistake> Mistakes::sorted() const {
  std::vector<Mistake> mistakes = heap_;
  std::ranges::sort(mistakes, is_more_confident);
  return mistakes;
}

std::vector<std::string> write_pictures(const std::string& folder, const Dataset& data,
                                        const std::vector<Mistake>& mistakes) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) throw Error(ErrorSource::save, fmt::format("cannot make '{}': {}", folder, failure.message()));
  std::vector<std::string> names;
  SampleBatch batch;
  for (const Mistake& mistake : mistakes) {
    data.read(std::array{mistake.sample}, batch);
    names.push_back(fmt::format("{}.png", mistake.sample));
    write_whole(fmt::format("{}/{}", folder, names.back()), small_png(batch.images.front(), kMostPixels));
  }
  return names;
}

}  // namespace tutti
