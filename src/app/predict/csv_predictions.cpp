#include "csv_predictions.hpp"

#include "tutti/base/utf8.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace tutti {
namespace {

std::string quoted(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string text = "\"";
  for (const char c : field) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + '"';
}

// Numbers here begin with a digit.
std::string made_safe(const std::string& field) {
  return (field.find_first_of("=+-@") == 0 ? "'" : "") + printable(field);
}

std::string line_of(std::vector<std::string> fields, bool safe) {
  if (safe) std::ranges::transform(fields, fields.begin(), made_safe);
  std::ranges::transform(fields, fields.begin(), quoted);
  return fmt::format("{}\n", fmt::join(fields, ","));
}

std::vector<std::string> header(const PredictionColumns& columns) {
  std::vector<std::string> fields{"image"};
  if (columns.sets) fields.emplace_back("set");
  if (columns.labels) fields.emplace_back("label");
  for (std::size_t rank = 1; rank <= columns.best; ++rank) {
    const std::string suffix = rank == 1 ? "" : fmt::format("_{}", rank);
    fields.push_back("predicted" + suffix);
    fields.push_back("probability" + suffix);
  }
  if (columns.probabilities) {
    for (const std::string& name : columns.class_names) fields.push_back("p_" + name);
  }
  if (columns.problems) fields.emplace_back("problem");
  return fields;
}

}  // namespace

CsvPredictions::CsvPredictions(const std::string& path, PredictionColumns columns)
    : columns_(std::move(columns)), outlet_(path) {
  outlet_.append(line_of(header(columns_), columns_.safe));
}

void CsvPredictions::add(const Prediction& prediction) {
  const auto& names = columns_.class_names;
  std::vector<std::string> fields{prediction.file.empty() ? fmt::format("{}", prediction.number) : prediction.file};
  if (columns_.sets) fields.push_back(prediction.set);
  if (columns_.labels) fields.push_back(prediction.label ? names[*prediction.label] : "");
  for (std::size_t rank = 0; rank < columns_.best; ++rank) {
    const bool is_there = rank < prediction.best.size();
    fields.push_back(is_there ? names[prediction.best[rank].number] : "");
    fields.push_back(is_there ? fmt::format("{}", prediction.best[rank].probability) : "");
  }
  for (std::size_t i = 0; columns_.probabilities && i < names.size(); ++i) {
    fields.push_back(i < prediction.probabilities.size() ? fmt::format("{}", prediction.probabilities[i]) : "");
  }
  if (columns_.problems) fields.push_back(prediction.problem);
  outlet_.append(line_of(fields, columns_.safe));
}

}  // namespace tutti
