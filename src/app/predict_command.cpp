#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/base/text.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "commands.hpp"
#include "output.hpp"
#include "scoring.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kStdout = "-";
constexpr std::size_t kMaxTableRows = 40;
constexpr std::size_t kFlushBytes = std::size_t{1} << 20;

struct Prediction {
  std::string file{};       // empty: the image has none
  std::int64_t number = 0;  // in its set
  std::string set{};
  std::optional<std::size_t> label{};
  std::vector<RankedClass> best{};      // the most probable first; none if the image could not be read
  std::vector<double> probabilities{};  // of all classes, with --probabilities
  std::string problem{};                // why it could not be read

  std::string image() const { return file.empty() ? fmt::format("{}", number) : file; }
};

// The columns of every row.
struct Columns {
  std::vector<std::string> class_names;
  std::size_t best = 1;
  bool sets = false;
  bool labels = false;
  bool probabilities = false;
  bool problems = false;
  bool safe = false;  // CSV without formulas and control characters
};

struct Field {
  std::string name;
  std::string value;
};

std::string quoted(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string text = "\"";
  for (const char c : field) text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return text + '"';
}

// No field with a number begins with one of these characters.
std::string made_safe(const std::string& field) {
  return (field.find_first_of("=+-@") == 0 ? "'" : "") + printable(field);
}

std::string csv_line(const std::vector<Field>& fields, std::string Field::*part, bool safe) {
  std::vector<std::string> texts;
  for (const Field& field : fields) texts.push_back(quoted(safe ? made_safe(field.*part) : field.*part));
  return fmt::format("{}\n", fmt::join(texts, ","));
}

// Comma-separated values (RFC 4180, but lines end in LF), with a header:
//   image              the file, or its number in its set
//   set                train or test, if both are predicted
//   label              the true class, if the data have labels
//   predicted, probability, then predicted_2, probability_2 .. for the less probable classes, with --top
//   p_<class>          probabilities of all classes, with --probabilities
//   problem            why the image was skipped, with --skip-bad-images; the prediction is empty then
// Numbers are the shortest that read back as the same double.
std::vector<Field> csv_fields(const Columns& columns, const Prediction& prediction) {
  const auto& names = columns.class_names;
  std::vector<Field> fields{{"image", prediction.image()}};
  if (columns.sets) fields.push_back({"set", prediction.set});
  if (columns.labels) fields.push_back({"label", prediction.label ? names[*prediction.label] : ""});
  for (std::size_t rank = 0; rank < columns.best; ++rank) {
    const std::string suffix = rank == 0 ? "" : fmt::format("_{}", rank + 1);
    const bool is_there = rank < prediction.best.size();
    fields.push_back({"predicted" + suffix, is_there ? names[prediction.best[rank].number] : ""});
    fields.push_back({"probability" + suffix, is_there ? fmt::format("{}", prediction.best[rank].probability) : ""});
  }
  for (std::size_t i = 0; columns.probabilities && i < names.size(); ++i) {
    const bool is_there = i < prediction.probabilities.size();
    fields.push_back({"p_" + names[i], is_there ? fmt::format("{}", prediction.probabilities[i]) : ""});
  }
  if (columns.problems) fields.push_back({"problem", prediction.problem});
  return fields;
}

// One line of JSON: "image" (the file, or its number in its set), "set" if both are predicted, "label" if the data have
// labels (null: unknown), "predicted" and "probability"; "best", a list of "class" and "probability", with --top 2 or
// more; "probabilities" by class, with --probabilities. A skipped image has "problem" instead of a prediction.
std::string json_row(const Columns& columns, const Prediction& prediction) {
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
  return json_line(json) + "\n";
}

// An aligned table for users: the first images, and the number of others.
class Table {
 public:
  explicit Table(const Columns& columns) {
    auto& header = rows_.emplace_back(std::vector<std::string>{"image"});
    if (columns.sets) header.emplace_back("set");
    if (columns.labels) header.emplace_back("label");
    header.insert(header.end(), {"predicted", "probability"});
    if (columns.best > 1) header.emplace_back("then");
  }
  void add(const Columns& columns, const Prediction& prediction);
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::int64_t more_ = 0;
};

void Table::add(const Columns& columns, const Prediction& prediction) {
  if (rows_.size() > kMaxTableRows) {
    ++more_;
    return;
  }
  const auto& names = columns.class_names;
  auto& row = rows_.emplace_back(std::vector<std::string>{printable(prediction.image())});
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
std::string Table::text() const {
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

// Writes rows of text to stdout immediately, or to a file that is renamed into place when it is complete.
class TextOutput {
 public:
  explicit TextOutput(const std::string& path) {
    if (path != kStdout) file_.emplace(path);
  }
  void append(std::string_view text) {
    waiting_ += text;
    if (waiting_.size() >= kFlushBytes) flush();
  }
  void finish() {
    flush();
    if (file_) file_->commit();
  }

 private:
  void flush() {
    if (file_) {
      file_->append(std::as_bytes(std::span(waiting_)));
    } else {
      fmt::print("{}", ::isatty(STDOUT_FILENO) != 0 ? printable(waiting_, "\n\r\t") : waiting_);
      std::fflush(stdout);
    }
    waiting_.clear();
  }

  std::optional<AtomicFile> file_;
  std::string waiting_;
};

void refuse_contradictions(const Invocation& invocation) {
  const PredictRequest& request = invocation.predict;
  const auto refuse = [](const std::string& words) { throw Error(ErrorSource::usage, words); };
  if (!request.images.empty()) {
    for (const char* const option : {"data", "test-data"}) {
      if (!invocation.run.given.contains(option)) continue;
      refuse(fmt::format("--{} and '{}' both name images: give one of them", option, request.images.front()));
    }
    if (request.on) {
      refuse(fmt::format("--on {} selects a set of --data, but '{}' was given", name_of(*request.on),
                         request.images.front()));
    }
  }
  if (request.csv == kStdout && invocation.json == kStdout) {
    refuse("--csv - and --json - both write to stdout: give one of them a file");
  }
  if (request.csv_safe && request.csv.empty()) refuse("--csv-safe needs --csv");
  if (request.probabilities && request.csv.empty() && invocation.json.empty()) {
    refuse("--probabilities needs --csv or --json: the table has no room for them");
  }
}

struct NamedSet {
  std::string name;
  const Dataset* data;
};

// Unlabelled images are one set without a name.
std::vector<NamedSet> chosen_sets(const Scoring& scoring, std::optional<PredictSets> on) {
  const DataPair& data = scoring.data();
  const NamedSet train{on || scoring.is_of_run() ? "train" : "all", data.train.get()};
  const NamedSet test{"test", data.test.get()};
  if (data.test && on == PredictSets::all) return {train, test};
  if (data.test && on != PredictSets::train) return {test};
  if (on != PredictSets::test) return {train};
  throw Error(ErrorSource::input,
              fmt::format("--data {} has no test set: give --test-data, or --on train to classify the training set",
                          scoring.config().data.train))
      .on_all_ranks();
}

Columns columns_for(const PredictRequest& request, const Scoring& scoring, const std::vector<NamedSet>& sets) {
  const DatasetInfo& info = sets.front().data->info();
  Columns columns{.class_names = shown_class_names(info),
                  .sets = request.on == PredictSets::all,
                  .probabilities = request.probabilities,
                  .safe = request.csv_safe};
  columns.best = std::min(static_cast<std::size_t>(request.top), columns.class_names.size());
  columns.labels = std::ranges::any_of(sets, [](const NamedSet& set) { return set.data->info().labelled; });
  columns.problems = scoring.config().data.skip_bad_images;
  return columns;
}

// Writes the rows of all sets to every requested output, on rank 0 alone.
class Predictions {
 public:
  Predictions(const Invocation& invocation, const Columns& columns) : columns_(columns) {
    if (!invocation.predict.csv.empty()) {
      csv_.emplace(invocation.predict.csv).append(csv_line(csv_fields(columns, {}), &Field::name, columns.safe));
    }
    if (!invocation.json.empty()) json_.emplace(invocation.json);
    if (!csv_ && !json_) table_.emplace(columns);
  }

  void add(const NamedSet& set, const ChunkScores& scores) {
    const DatasetInfo& info = set.data->info();
    for (std::size_t i = 0; i < scores.samples.size(); ++i) {
      const std::int64_t number = scores.first + static_cast<std::int64_t>(i);
      add_skipped(set, number);
      Prediction prediction{.file = set.data->file_of(number), .number = number, .set = set.name};
      if (info.labelled) prediction.label = static_cast<std::size_t>(scores.samples[i].label);
      prediction.best = best_classes(scores, i, columns_.best);
      for (std::size_t c = 0; columns_.probabilities && c < scores.classes; ++c) {
        prediction.probabilities.push_back(scores.probability(i, c));
      }
      write(prediction);
    }
  }
  void end(const NamedSet& set) {
    add_skipped(set, set.data->info().samples);
    skipped_ = 0;
  }
  void finish() {
    if (csv_) csv_->finish();
    if (json_) json_->finish();
    if (table_) fmt::print("{}", table_->text());
  }

 private:
  // Writes the skipped images that precede this sample of the set.
  void add_skipped(const NamedSet& set, std::int64_t number) {
    const auto& skipped = set.data->info().skipped;
    for (; skipped_ < skipped.size() && skipped[skipped_].next_sample <= number; ++skipped_) {
      write({.file = skipped[skipped_].name, .set = set.name, .problem = skipped[skipped_].problem});
    }
  }
  void write(const Prediction& prediction) {
    if (csv_) csv_->append(csv_line(csv_fields(columns_, prediction), &Field::value, columns_.safe));
    if (json_) json_->append(json_row(columns_, prediction));
    if (table_) table_->add(columns_, prediction);
  }

  Columns columns_;
  std::optional<TextOutput> csv_;
  std::optional<TextOutput> json_;
  std::optional<Table> table_;
  std::size_t skipped_ = 0;  // of the current set, written so far
};

std::string summary(const NamedSet& set, const LossSums& sums) {
  const DatasetInfo& info = set.data->info();
  std::string line = info.labelled ? evaluation_line(set.name, sums) : plural(info.samples, "image");
  if (!info.skipped.empty()) line += fmt::format(", {} skipped", info.skipped.size());
  return line;
}

}  // namespace

ExitStatus predict_command(World& world, const Invocation& invocation, CommandContext& context) {
  const PredictRequest& request = invocation.predict;
  run_or_throw_on_all(world, [&] { refuse_contradictions(invocation); });
  Scoring scoring(world, invocation, /*needs_labels=*/false, context);
  const std::vector<NamedSet> sets = chosen_sets(scoring, request.on);
  std::optional<Predictions> predictions;
  on_rank_0(world, [&] { predictions.emplace(invocation, columns_for(request, scoring, sets)); });
  std::vector<std::string> lines;
  for (const NamedSet& set : sets) {
    const LossSums sums =
        scoring.evaluate(*set.data, [&](const ChunkScores& scores) { predictions->add(set, scores); });
    lines.push_back(summary(set, sums));
    on_rank_0(world, [&] { predictions->end(set); });
  }
  on_rank_0(world, [&] {
    predictions->finish();
    const bool stdout_has_rows = request.csv == kStdout || invocation.json == kStdout;
    for (const std::string& line : lines) {
      if (stdout_has_rows) {
        write_stderr_line(line);
      } else {
        fmt::print("{}\n", line);
      }
    }
    std::fflush(stdout);
  });
  return ExitStatus::done;
}

}  // namespace tutti
