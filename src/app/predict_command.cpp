#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"

#include "commands.hpp"
#include "plural.hpp"
#include "predictions.hpp"
#include "scoring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace tutti {
namespace {

void refuse_contradictions(const Invocation& invocation) {
  const PredictRequest& request = invocation.predict;
  const auto refuse = [](const std::string& words) { throw Error(ErrorSource::usage, words); };
  if (!request.images.empty()) {
    for (const char* const option : {"data", "test-data"}) {
      if (!invocation.given.contains(option)) continue;
      refuse(fmt::format("--{} and '{}' both name images: give one of them", option, request.images.front()));
    }
    if (!request.on.empty()) {
      refuse(fmt::format("--on {} selects a set of --data, but '{}' was given", request.on, request.images.front()));
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

// Unlabelled images are one set without a name of its own.
std::vector<NamedSet> chosen_sets(const Scoring& scoring, const std::string& on) {
  const DataPair& data = scoring.data();
  const NamedSet train{"train", data.train.get()};
  const NamedSet test{"test", data.test.get()};
  if (on == "train" || (on.empty() && !data.test)) return {train};
  if (data.test) return on == "all" ? std::vector<NamedSet>{train, test} : std::vector<NamedSet>{test};
  if (on == "all") return {train};
  throw Error(ErrorSource::input,
              fmt::format("--data {} has no test set: give --test-data, or --on train to classify the training set",
                          scoring.config().data))
      .on_all_ranks();
}

PredictionColumns columns_for(const PredictRequest& request, const Scoring& scoring,
                              const std::vector<NamedSet>& sets) {
  const DatasetInfo& info = sets.front().data->info();
  PredictionColumns columns{.class_names = shown_class_names(info),
                            .sets = request.on == "all",
                            .probabilities = request.probabilities,
                            .safe = request.csv_safe};
  columns.best = std::min(static_cast<std::size_t>(request.top), columns.class_names.size());
  columns.labels = std::ranges::any_of(sets, [](const NamedSet& set) { return set.data->info().labelled; });
  columns.problems = scoring.config().skip_bad_images;
  return columns;
}

// The rows of all sets, written to every output that was asked for; on rank 0 alone.
class Predictions {
 public:
  Predictions(const Invocation& invocation, const PredictionColumns& columns) : columns_(columns) {
    if (!invocation.predict.csv.empty()) csv_.emplace(invocation.predict.csv).append(csv_header(columns));
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
    if (!table_) return;
    TextOutlet out{std::string(kStdout)};
    out.append(table_->text());
    out.finish();
  }

 private:
  // The skipped images that come before this sample of the set.
  void add_skipped(const NamedSet& set, std::int64_t number) {
    const auto& skipped = set.data->info().skipped;
    for (; skipped_ < skipped.size() && skipped[skipped_].before <= number; ++skipped_) {
      write({.file = skipped[skipped_].name, .set = set.name, .problem = skipped[skipped_].problem});
    }
  }
  void write(const Prediction& prediction) {
    if (csv_) csv_->append(csv_row(columns_, prediction));
    if (json_) json_->append(json_row(columns_, prediction));
    if (table_) table_->add(columns_, prediction);
  }

  PredictionColumns columns_;
  std::optional<TextOutlet> csv_;
  std::optional<TextOutlet> json_;
  std::optional<PredictionTable> table_;
  std::size_t skipped_ = 0;  // of the current set, written so far
};

std::string summary(const NamedSet& set, const LossSums& sums) {
  const DatasetInfo& info = set.data->info();
  std::string line = info.labelled ? evaluation_line(set.name, sums) : plural(info.samples, "image");
  if (!info.skipped.empty()) line += fmt::format(", {} skipped", info.skipped.size());
  return line;
}

}  // namespace

ExitStatus predict_command(World& world, const Invocation& invocation, const EndRecord& record) {
  const PredictRequest& request = invocation.predict;
  run_agreed(world, [&] { refuse_contradictions(invocation); });
  Scoring scoring(world, invocation,
                  {.checkpoint = request.checkpoint, .images = request.images, .needs_labels = false}, record);
  const std::vector<NamedSet> sets = chosen_sets(scoring, request.on);
  std::optional<Predictions> predictions;
  run_agreed(world, [&] {
    if (world.rank() == 0) predictions.emplace(invocation, columns_for(request, scoring, sets));
  });
  std::vector<std::string> lines;
  for (const NamedSet& set : sets) {
    const LossSums sums =
        scoring.evaluate(*set.data, [&](const ChunkScores& scores) { predictions->add(set, scores); });
    lines.push_back(summary(set, sums));
    run_agreed(world, [&] {
      if (predictions) predictions->end(set);
    });
  }
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
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
