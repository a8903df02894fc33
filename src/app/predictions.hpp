#pragma once
// The results of trainer predict: the classes of each image, written as CSV, as JSON lines or as a table.

#include "tutti/storage/whole_file.hpp"
#include "tutti/train/evaluation.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct RankedClass {
  std::size_t number = 0;
  double probability = 0;
};

struct Prediction {
  std::string file;         // empty: the image has none
  std::int64_t number = 0;  // in its set
  std::string set{};
  std::optional<std::size_t> label{};
  std::vector<RankedClass> best{};      // the most probable first; none if the image could not be read
  std::vector<double> probabilities{};  // of all classes, if asked for
  std::string problem{};                // why it could not be read
};

// The `count` most probable classes of a sample. Ties go to the lower number.
std::vector<RankedClass> best_classes(const ChunkScores& scores, std::size_t sample, std::size_t count);

// The columns of every row.
struct PredictionColumns {
  std::vector<std::string> class_names;
  std::size_t best = 1;
  bool sets = false;
  bool labels = false;
  bool probabilities = false;
  bool problems = false;
  bool safe = false;  // CSV without formulas and control characters
};

// Comma-separated values (RFC 4180, but lines end in LF), with a header:
//   image              the file, or its number in its set
//   set                train or test, if both are predicted
//   label              the true class, if the data have labels
//   predicted, probability, then predicted_2, probability_2 .. for the less probable classes that were asked for
//   p_<class>          probabilities of all classes, if asked for
//   problem            why the image was skipped, if images may be; what is predicted is empty then
// Numbers are the shortest that read back as the same double.
std::string csv_header(const PredictionColumns& columns);
std::string csv_row(const PredictionColumns& columns, const Prediction& prediction);

// One line of JSON: "image" (the file, or its number in its set), "set" if both are predicted, "label" if the data have
// labels (null: unknown), "predicted" and "probability"; "best", a list of "class" and "probability", if more than one
// was asked for; "probabilities" by class, if asked for. A skipped image has "problem" instead of what is predicted.
std::string json_row(const PredictionColumns& columns, const Prediction& prediction);

// An aligned table for people: the first images, and how many more there are.
class PredictionTable {
 public:
  explicit PredictionTable(const PredictionColumns& columns);
  void add(const PredictionColumns& columns, const Prediction& prediction);
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::int64_t more_ = 0;
};

inline constexpr std::string_view kStdout = "-";

// Where rows of text go: to stdout as they come, or to a file that appears whole or not at all.
class TextOutlet {
 public:
  // "-" is stdout. All functions throw save errors that name the file.
  explicit TextOutlet(const std::string& path);

  void append(std::string_view text);
  void finish();

 private:
  void flush();

  std::optional<WholeFile> file_;
  std::string waiting_;
};

}  // namespace tutti
