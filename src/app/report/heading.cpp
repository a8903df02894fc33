#include "../several.hpp"
#include "figure_text.hpp"
#include "sections.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

namespace tutti {
namespace {

// Of a path, its last part; all else as it is.
std::string short_name(const std::string& name) {
  const std::string last = std::filesystem::path(name).filename().string();
  return name.find('/') != std::string::npos && !last.empty() ? last : name;
}

std::string told(const RunHistory& history, const char* name, const char* otherwise) {
  const std::string fact = history.fact(name);
  return fact.empty() ? otherwise : short_name(fact);
}

struct Standing {
  const char* look;
  std::string words;
};

Standing standing_of(const RunHistory& history) {
  const std::string steps = several(history.last_step(), "step");
  if (history.is_under_way) return {"going", fmt::format("under way, {} done", steps)};
  if (history.end) {
    const std::string status = history.end_fact("status");
    return {status == "75" ? "stopped" : "failed",
            fmt::format("ended with status {} after {}: {}", status, steps, history.end_fact("reason"))};
  }
  const std::int64_t ended = history.epochs.empty() ? 0 : history.epochs.rbegin()->second.epoch;
  if (history.options && history.options->steps == 0 && ended < history.options->epochs) {
    return {"stopped", fmt::format("ended in epoch {} of {}, leaving no reason", ended + 1, history.options->epochs)};
  }
  return {"done", fmt::format("done after {}", steps)};
}

std::string ranks_text(const RunHistory& history) {
  std::vector<std::string> counts;
  for (const RunStart& start : history.starts) {
    const std::string ranks = start.fact("ranks");
    const std::string words = several(ranks, "rank");
    if (!ranks.empty() && (counts.empty() || counts.back() != words)) counts.push_back(words);
  }
  return fmt::format("{}", fmt::join(counts, ", then "));
}

std::string conditions_of(const RunHistory& history) {
  std::vector<std::string> facts{ranks_text(history)};
  if (history.options) {
    facts.push_back(fmt::format("batch {} in {}", history.options->batch_size, several(history.fact("parts"), "part")));
    facts.push_back(history.options->precision);
    facts.push_back(history.options->optimizer);
  }
  if (const std::string exchange = history.fact("exchange"); !exchange.empty()) facts.push_back("exchange " + exchange);
  facts.push_back(history.fact("parameters").empty() ? "" : history.fact("parameters") + " parameters");
  facts.push_back(history.date);
  std::erase(facts, "");
  return fmt::format("{}", fmt::join(facts, " · "));
}

Html tile(const char* name, const Html& value) { return element("div", element("dt", name) + element("dd", value)); }

Html tile(const char* name, const std::string& value, const std::string& more = "") {
  return tile(name, element("b", value) + (more.empty() ? Html() : element("small", more)));
}

Html tiles_of(const RunHistory& history) {
  Html tiles;
  if (history.epochs.empty()) return tiles;
  const EpochRecord& last = history.epochs.rbegin()->second;
  const EpochRecord* best = &last;
  double seconds = 0;
  for (const auto& [step, record] : history.epochs) {
    seconds += record.seconds.value_or(0);
    if (record.test_accuracy && record.test_accuracy > best->test_accuracy) best = &record;
  }
  if (last.test_accuracy) tiles += tile("test accuracy", percent_text(*last.test_accuracy));
  if (best != &last) {
    tiles += tile("best test accuracy", percent_text(*best->test_accuracy), fmt::format("epoch {}", best->epoch));
  }
  if (last.train_accuracy) tiles += tile("train accuracy", percent_text(*last.train_accuracy));
  if (last.test_loss) tiles += tile("test loss", decimal_text(last.test_loss));
  if (last.train_loss) tiles += tile("train loss", decimal_text(last.train_loss));
  tiles += tile("training took", seconds_text(seconds), several(history.epochs.size(), "epoch"));
  if (last.images_per_second) {
    tiles += tile("speed", whole_text(*last.images_per_second), "images/s");
  }
  if (!last.digest.empty()) tiles += tile("weights", element("code", last.digest));
  return element("dl", {{"class", "tiles"}}, tiles);
}

}  // namespace

std::string headline(const RunHistory& history) {
  const std::string model = told(history, "model", "the network");
  const std::string data = told(history, "data", "its data");
  if (history.epochs.empty()) return fmt::format("No epoch of {} on {} has ended yet", model, data);
  const EpochRecord& last = history.epochs.rbegin()->second;
  const std::string when =
      fmt::format("{} {}", history.is_under_way ? "So far, after" : "After", several(last.epoch, "epoch"));
  if (last.test_accuracy) {
    return fmt::format("{}, {} names {} of the test images of {} rightly", when, model,
                       percent_text(*last.test_accuracy), data);
  }
  if (last.train_accuracy) {
    return fmt::format("{}, {} names {} of the training images of {} rightly; it was not tested", when, model,
                       percent_text(*last.train_accuracy), data);
  }
  return fmt::format("{}, it is not known what {} makes of {}", when, model, data);
}

Html heading_of(const RunHistory& history) {
  const Standing standing = standing_of(history);
  return element("header", element("p", {{"class", "folder"}}, history.folder) + element("h1", headline(history)) +
                               element("p", element("span", {{"class", std::string("standing ") + standing.look}},
                                                    standing.words)) +
                               element("p", {{"class", "conditions"}}, conditions_of(history)) + tiles_of(history));
}

}  // namespace tutti
