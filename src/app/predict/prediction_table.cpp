#include "prediction_table.hpp"

#include "tutti/base/utf8.hpp"

#include "text_outlet.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr std::size_t kMostRows = 40;

// The last column is not filled up.
std::string text_of(std::vector<std::vector<std::string>> rows) {
  for (auto& row : rows) {
    for (std::string& cell : row) cell = printable(cell);
  }
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) text += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += row.back() + "\n";
  }
  return text;
}

}  // namespace

PredictionTable::PredictionTable(PredictionColumns columns) : columns_(std::move(columns)) {
  auto& header = rows_.emplace_back(std::vector<std::string>{"image"});
  if (columns_.sets) header.emplace_back("set");
  if (columns_.labels) header.emplace_back("label");
  header.emplace_back("predicted");
  header.emplace_back("probability");
  if (columns_.best > 1) header.emplace_back("then");
}

void PredictionTable::add(const Prediction& prediction) {
  if (rows_.size() > kMostRows) {
    ++more_;
    return;
  }
  const auto& names = columns_.class_names;
  auto& row = rows_.emplace_back();
  row.push_back(prediction.file.empty() ? fmt::format("{}", prediction.number) : prediction.file);
  if (columns_.sets) row.push_back(prediction.set);
  if (columns_.labels) row.push_back(prediction.label ? names[*prediction.label] : "-");
  if (!prediction.problem.empty()) {
    row.push_back("-");
    row.push_back(prediction.problem);
    return;
  }
  row.push_back(names[prediction.best.front().number]);
  row.push_back(fmt::format("{:.4f}", prediction.best.front().probability));
  if (columns_.best == 1) return;
  std::string others;
  for (std::size_t i = 1; i < prediction.best.size(); ++i) {
    others += fmt::format("{}{} {:.4f}", i == 1 ? "" : ", ", names[prediction.best[i].number],
                          prediction.best[i].probability);
  }
  row.push_back(others);
}

void PredictionTable::finish() {
  TextOutlet out{std::string(kStdout)};
  out.append(text_of(rows_));
  if (more_ > 0) out.append(fmt::format("and {} more: --csv FILE or --json FILE has all of them\n", more_));
  out.finish();
}

}  // namespace tutti
