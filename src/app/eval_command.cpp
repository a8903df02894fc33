#include "tutti/base/error.hpp"
#include "tutti/storage/whole_file.hpp"

#include "commands.hpp"
#include "evaluation_report.hpp"
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

constexpr std::size_t kMostMistakes = 24;

// The training set of the run is evaluated only on request; the only set of other data is.
std::string chosen_set(const Scoring& scoring, const std::string& on) {
  if (on == "train") return on;
  if (scoring.data().test) return "test";
  if (on == "any") return "train";
  if (on.empty() && !scoring.is_of_run()) return "train";
  throw Error(ErrorSource::input,
              fmt::format("--data {} has no test set: give --test-data, or --on train to evaluate the training set",
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

// The whole matrix, a row for each label; of more than 1000 classes the entries that are not zero: label, prediction,
// count.
std::string confusion_json(const Confusion& confusion) {
  constexpr std::size_t kMostOfMatrix = 1000;
  const bool is_whole = confusion.classes() <= kMostOfMatrix;
  std::vector<std::string> rows;
  for (std::size_t label = 0; label < confusion.classes(); ++label) {
    std::vector<std::int64_t> counts(is_whole ? confusion.classes() : 0);
    for (const auto& [predicted, images] : confusion.row(label)) {
      if (is_whole) {
        counts[predicted] = images;
      } else {
        rows.push_back(fmt::format("    [{}, {}, {}]", label, predicted, images));
      }
    }
    if (is_whole) rows.push_back(fmt::format("    [{}]", fmt::join(counts, ", ")));
  }
  return fmt::format("  \"{}\": [\n{}\n  ]", is_whole ? "confusion" : "confusion_entries", fmt::join(rows, ",\n"));
}

// With a row of the matrix in each line.
std::string json_text(Json json, const Confusion& confusion) {
  for (std::size_t label = 0; label < confusion.classes(); ++label) {
    json["classes"].push_back(class_json(confusion, label));
  }
  std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  text.resize(text.rfind("\n}"));
  return fmt::format("{},\n{}\n}}\n", text, confusion_json(confusion));
}

Json mistakes_json(const std::string& folder, const Dataset& data, const Confusion& confusion,
                   const std::vector<Mistake>& mistakes) {
  const std::vector<std::string> pictures = write_pictures(folder, data, mistakes);
  Json list = Json::array();
  for (std::size_t i = 0; i < mistakes.size(); ++i) {
    const Mistake& mistake = mistakes[i];
    const std::string file = data.file_of(mistake.sample);
    list.push_back({{"image", file.empty() ? Json(mistake.sample) : Json(file)},
                    {"label", confusion.name(mistake.label)},
                    {"predicted", confusion.name(mistake.predicted)},
                    {"probability", mistake.probability},
                    {"probability_of_label", mistake.probability_of_label},
                    {"picture", pictures[i]}});
  }
  return list;
}

void report(const Invocation& invocation, const Scoring& scoring, const Dataset& data, const std::string& set,
            const LossSums& sums, const Confusion& confusion, const Mistakes& mistakes) {
  const EvalRequest& request = invocation.eval;
  fmt::print("{}\n", evaluation_line(set, sums));
  if (request.classes) fmt::print("\n{}", confusion.text());
  std::fflush(stdout);
  Json list;
  if (!request.mistakes.empty()) list = mistakes_json(request.mistakes, data, confusion, mistakes.sorted());
  if (invocation.json.empty()) return;
  Json json{{"checkpoint", scoring.checkpoint().path},
            {"verified", true},
            {"step", scoring.checkpoint().state.progress.step},
            {"data", scoring.config().data},
            {"set", set},
            {"loss", sums.mean_loss()},
            {"accuracy", sums.accuracy()},
            {"images", sums.samples}};
  if (!request.mistakes.empty()) json["mistakes"] = list;
  const std::string text = json_text(json, confusion);
  write_whole(invocation.json, std::as_bytes(std::span(text)));
}

}  // namespace

ExitStatus eval_command(World& world, const Invocation& invocation, const EndRecord& record) {
  Scoring scoring(world, invocation, {.checkpoint = invocation.eval.checkpoint}, record);
  const EvalRequest& request = invocation.eval;
  const std::string set = chosen_set(scoring, request.on);
  const Dataset& data = set == "train" ? *scoring.data().train : *scoring.data().test;
  const bool by_class = request.classes || !request.mistakes.empty() || !invocation.json.empty();
  Confusion confusion(by_class ? shown_class_names(data.info()) : std::vector<std::string>{});
  Mistakes mistakes(request.mistakes.empty() ? 0 : kMostMistakes);
  const auto receive = [&](const ChunkScores& scores) {
    confusion.add(scores);
    mistakes.add(scores);
  };
  const LossSums sums = scoring.evaluate(data, by_class ? Scoring::Receive(receive) : nullptr);
  run_agreed(world, [&] {
    if (world.rank() == 0) report(invocation, scoring, data, set, sums, confusion, mistakes);
  });
  return ExitStatus::done;
}

}  // namespace tutti
