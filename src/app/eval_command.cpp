#include "eval_command.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/whole_file.hpp"

#include "confusion.hpp"
#include "scoring.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

// The images that a run was trained on are evaluated when asked for alone; other data are not known to be a training set.
std::string chosen_set(const Scoring& scoring, const std::string& on) {
  if (on == "train") return on;
  if (scoring.data().test) return "test";
  if (on.empty() && !scoring.is_of_run()) return "train";
  throw Error(
      ErrorSource::input,
      fmt::format("--data {} holds no test set: give --test-data, or --on train to evaluate on the training set",
                  scoring.config().data))
      .on_all_ranks();
}

Json class_json(const Confusion& confusion, std::size_t label) {
  const std::int64_t images = confusion.samples(label);
  const std::int64_t correct = confusion.count(label, label);
  Json json{{"class", confusion.name(label)}, {"images", images}, {"correct", correct}};
  json["accuracy"] = images == 0 ? Json() : Json(static_cast<double>(correct) / static_cast<double>(images));
  return json;
}

// Whole, a row for each label; or where that would be much, what is not zero: label, what it is taken for, how often.
std::string square_json(const Confusion& confusion) {
  std::vector<std::string> rows;
  for (std::size_t label = 0; label < confusion.classes(); ++label) {
    std::vector<std::int64_t> counts(confusion.classes());
    for (const auto& [predicted, images] : confusion.row(label)) counts[predicted] = images;
    rows.push_back(fmt::format("    [{}]", fmt::join(counts, ", ")));
  }
  return fmt::format("  \"confusion\": [\n{}\n  ]", fmt::join(rows, ",\n"));
}

std::string entries_json(const Confusion& confusion) {
  std::vector<std::string> entries;
  for (std::size_t label = 0; label < confusion.classes(); ++label) {
    for (const auto& [predicted, images] : confusion.row(label)) {
      entries.push_back(fmt::format("    [{}, {}, {}]", label, predicted, images));
    }
  }
  return fmt::format("  \"confusion_entries\": [\n{}\n  ]", fmt::join(entries, ",\n"));
}

std::string json_text(Json json, const Confusion& confusion) {
  for (std::size_t label = 0; label < confusion.classes(); ++label) {
    json["classes"].push_back(class_json(confusion, label));
  }
  std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  text.resize(text.rfind("\n}"));
  constexpr std::size_t kMostOfSquare = 1000;
  const bool fits = confusion.classes() <= kMostOfSquare;
  return fmt::format("{},\n{}\n}}\n", text, fits ? square_json(confusion) : entries_json(confusion));
}

void report(const Invocation& invocation, const LoadedCheckpoint& loaded, const LossSums& sums,
            const Confusion& confusion, const std::string& set) {
  fmt::print("{}\n", evaluation_line(set, sums));
  if (invocation.eval.classes) fmt::print("\n{}", confusion.text());
  std::fflush(stdout);
  if (invocation.json.empty()) return;
  const std::string json = json_text({{"checkpoint", loaded.path},
                                      {"verified", true},
                                      {"step", loaded.state.progress.step},
                                      {"set", set},
                                      {"loss", sums.mean_loss()},
                                      {"accuracy", sums.accuracy()},
                                      {"images", sums.samples}},
                                     confusion);
  write_whole(invocation.json, std::as_bytes(std::span(json)));
}

}  // namespace

ExitStatus eval_command(World& world, const Invocation& invocation, const EndRecord& record) {
  Scoring scoring(world, invocation, {.checkpoint = invocation.eval.checkpoint}, record);
  const std::string set = chosen_set(scoring, invocation.eval.on);
  const Dataset& data = set == "train" ? *scoring.data().train : *scoring.data().test;
  const bool by_class = invocation.eval.classes || !invocation.json.empty();
  Confusion confusion(by_class ? told_class_names(data.info()) : std::vector<std::string>{});
  const LossSums sums = by_class ? scoring.evaluate(data, [&](const ChunkScores& scores) { confusion.add(scores); })
                                 : scoring.evaluate(data);
  run_agreed(world, [&] {
    if (world.rank() == 0) report(invocation, scoring.checkpoint(), sums, confusion, set);
  });
  return ExitStatus::done;
}

}  // namespace tutti
