#include "predictions.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostTableRows = 40;
constexpr std::size_t kFlushBytes = std::size_t{1} << 20;

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

std::string csv_line(std::vector<std::string> fields, bool safe) {
  if (safe) std::ranges::transform(fields, fields.begin(), made_safe);
  std::ranges::transform(fields, fields.begin(), quoted);
  return fmt::format("{}\n", fmt::join(fields, ","));
}

std::string image_text(const Prediction& prediction) {
  return prediction.file.empty() ? fmt::format("{}", prediction.number) : prediction.file;
}

void write_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  throw Error(ErrorSource::save, fmt::format("cannot write to stdout: {}", std::strerror(errno)));
}

}  // namespace

// By logits: different ones may give the same probability.
std::vector<RankedClass> best_classes(const ChunkScores& scores, std::size_t sample, std::size_t count) {
  const std::span<const float> logits = scores.logits_of(sample);
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(count, order.size()));
  std::ranges::partial_sort(order, end, [logits](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  std::vector<RankedClass> best;
  for (auto number = order.begin(); number != end; ++number) {
    best.push_back({*number, scores.probability(sample, *number)});
  }
  return best;
}

std::string csv_header(const PredictionColumns& columns) {
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
  return csv_line(fields, columns.safe);
}

std::string csv_row(const PredictionColumns& columns, const Prediction& prediction) {
  const auto& names = columns.class_names;
  std::vector<std::string> fields{image_text(prediction)};
  if (columns.sets) fields.push_back(prediction.set);
  if (columns.labels) fields.push_back(prediction.label ? names[*prediction.label] : "");
  for (std::size_t rank = 0; rank < columns.best; ++rank) {
    const bool is_there = rank < prediction.best.size();
    fields.push_back(is_there ? names[prediction.best[rank].number] : "");
    fields.push_back(is_there ? fmt::format("{}", prediction.best[rank].probability) : "");
  }
  for (std::size_t i = 0; columns.probabilities && i < names.size(); ++i) {
    fields.push_back(i < prediction.probabilities.size() ? fmt::format("{}", prediction.probabilities[i]) : "");
  }
  if (columns.problems) fields.push_back(prediction.problem);
  return csv_line(fields, columns.safe);
}

std::string json_row(const PredictionColumns& columns, const Prediction& prediction) {
  const auto& names = columns.class_names;
  Json json;
  json["image"] = prediction.file.empty() ? Json(prediction.number) : Json(prediction.file);
  if (columns.sets) json["set"] = prediction.set;
  if (columns.labels) json["label"] = prediction.label ? Json(names[*prediction.label]) : Json();
  if (!prediction.problem.empty()) {
    json["problem"] = prediction.problem;
  } else {
    json["predicted"] = names[prediction.best.front().number];
    json["probability"] = prediction.best.front().probability;
  }
  if (columns.best > 1) {
    for (const auto& [number, probability] : prediction.best) {
      json["best"].push_back({{"class", names[number]}, {"probability", probability}});
    }
  }
  for (std::size_t i = 0; i < prediction.probabilities.size(); ++i) {
    json["probabilities"][names[i]] = prediction.probabilities[i];
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

PredictionTable::PredictionTable(const PredictionColumns& columns) {
  auto& header = rows_.emplace_back(std::vector<std::string>{"image"});
  if (columns.sets) header.emplace_back("set");
  if (columns.labels) header.emplace_back("label");
  header.emplace_back("predicted");
  header.emplace_back("probability");
  if (columns.best > 1) header.emplace_back("then");
}

void PredictionTable::add(const PredictionColumns& columns, const Prediction& prediction) {
  if (rows_.size() > kMostTableRows) {
    ++more_;
    return;
  }
  const auto& names = columns.class_names;
  auto& row = rows_.emplace_back(std::vector<std::string>{printable(image_text(prediction))});
  if (columns.sets) row.push_back(prediction.set);
  if (columns.labels) row.push_back(prediction.label ? printable(names[*prediction.label]) : "-");
  if (!prediction.problem.empty()) {
    row.insert(row.end(), {"-", printable(prediction.problem)});
    return;
  }
  row.push_back(printable(names[prediction.best.front().number]));
  row.push_back(fmt::format("{:.4f}", prediction.best.front().probability));
  if (columns.best == 1) return;
  std::vector<std::string> others;
  for (const RankedClass& other : std::span(prediction.best).subspan(1)) {
    others.push_back(fmt::format("{} {:.4f}", printable(names[other.number]), other.probability));
  }
  row.push_back(fmt::format("{}", fmt::join(others, ", ")));
}

// The last column is not padded.
std::string PredictionTable::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i + 1 < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i) text += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += row.back() + "\n";
  }
  if (more_ > 0) text += fmt::format("and {} more: --csv FILE or --json FILE has all of them\n", more_);
  return text;
}

TextOutlet::TextOutlet(const std::string& path) {
  if (path != kStdout) file_.emplace(path);
}

void TextOutlet::append(std::string_view text) {
  waiting_ += text;
  if (waiting_.size() >= kFlushBytes) flush();
}

void TextOutlet::finish() {
  flush();
  if (file_) file_->keep();
}

void TextOutlet::flush() {
  if (file_) {
    file_->append(std::as_bytes(std::span(waiting_)));
  } else {
    write_stdout(::isatty(STDOUT_FILENO) != 0 ? printable(waiting_, "\n\r\t") : waiting_);
  }
  waiting_.clear();
}

}  // namespace tutti
