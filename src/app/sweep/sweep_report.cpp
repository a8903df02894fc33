#include "sweep_report.hpp"

#include "tutti/base/digest.hpp"

#include "../option_table.hpp"
#include "../several.hpp"
#include "sweep_lists.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string_view>
#include <variant>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

const SweepOutcome* trained(const SweepOutcomes& outcomes, std::size_t row) {
  return outcomes[row] && !outcomes[row]->trouble ? &*outcomes[row] : nullptr;
}

// The first of its kin.
std::size_t compared_with(const SweepPlan& plan, const SweepOutcomes& outcomes, std::size_t row) {
  std::size_t first = 0;
  while (first < row && (trained(outcomes, first) == nullptr || plan.cases[first].kin != plan.cases[row].kin)) ++first;
  return first;
}

double speed_up(const SweepPlan& plan, const SweepOutcomes& outcomes, std::size_t row) {
  const double base = outcomes[compared_with(plan, outcomes, row)]->images_per_second();
  return base > 0 ? outcomes[row]->images_per_second() / base : 0;
}

// Of equal work that is done alike, speeds differ by nothing but noise.
bool tells_speed_up(const SweepPlan& plan) {
  static constexpr std::array<std::string_view, 5> kOfSpeed{kRanks, "threads", "parts", "batch-size", "precision"};
  for (std::size_t column = 0; column < plan.columns.size(); ++column) {
    const std::string& first = plan.cases.front().values[column];
    const bool varies =
        std::ranges::any_of(plan.cases, [&](const SweepCase& one) { return one.values[column] != first; });
    if (varies && std::ranges::find(kOfSpeed, plan.columns[column]) != kOfSpeed.end()) return true;
  }
  return false;
}

// In eight letters at most, also where a rate has blown the weights up.
std::string loss_text(double loss) { return loss < 1000 ? fmt::format("{:.4f}", loss) : fmt::format("{:.3g}", loss); }

std::size_t width_of(const SweepPlan& plan, std::size_t column) {
  std::size_t width = plan.columns[column].size();
  for (const SweepCase& one : plan.cases) width = std::max(width, one.values[column].size());
  return width;
}

std::string choice_text(const SweepPlan& plan, std::size_t row) {
  std::string text;
  for (std::size_t column = 0; column < plan.columns.size(); ++column) {
    text += fmt::format("{}{} {}", column == 0 ? "" : ", ", plan.columns[column], plan.cases[row].values[column]);
  }
  return text;
}

// The trained row with the most of it, the first of equals.
template <class Figure>
std::optional<std::size_t> best_row(const SweepOutcomes& outcomes, const Figure& figure) {
  std::optional<std::size_t> best;
  for (std::size_t row = 0; row < outcomes.size(); ++row) {
    if (trained(outcomes, row) == nullptr) continue;
    if (!best || figure(*outcomes[row]) > figure(*outcomes[*best])) best = row;
  }
  return best;
}

double tested_accuracy(const SweepOutcome& outcome) {
  const auto test = outcome.test();
  return test && test->not_finite == 0 ? test->accuracy() : -1;
}

Json sums_json(const std::optional<LossSums>& sums, double (LossSums::*figure)() const) {
  return sums ? Json(((*sums).*figure)()) : Json(nullptr);
}

Json epoch_json(const EpochReport& epoch) {
  return {{"epoch", epoch.epoch},
          {"step", epoch.step},
          {"train_loss", epoch.train.mean_loss()},
          {"train_acc", epoch.train.accuracy()},
          {"test_loss", sums_json(epoch.test, &LossSums::mean_loss)},
          {"test_acc", sums_json(epoch.test, &LossSums::accuracy)},
          {"seconds", epoch.seconds},
          {"images_per_second", epoch.images_per_second()},
          {"lr", epoch.learning_rate},
          {"digest", digest_text(epoch.weights_digest)}};
}

// As the options' table has it, not as text.
Json options_json(const SweepPlan& plan, const SweepCase& one) {
  Json json;
  RunConfig config = one.config;
  const auto options = run_options(config);
  for (const std::string& column : plan.columns) {
    if (column == kRanks) {
      json[column] = one.ranks;
      continue;
    }
    std::visit([&](const auto* value) { json[column] = *value; },
               std::ranges::find(options, column, &RunOption::name)->target);
  }
  return json;
}

}  // namespace

std::string sweep_head(const SweepPlan& plan) {
  std::string head;
  for (std::size_t column = 0; column < plan.columns.size(); ++column) {
    head += fmt::format("{:>{}}  ", plan.columns[column], width_of(plan, column));
  }
  return head + fmt::format("{:>8} {:>9} {:>9} {:>9} {:>10}{}  {}\n", "loss", "train acc", "test acc", "time s",
                            "images/s", tells_speed_up(plan) ? "  speed-up" : "", "weights");
}

std::string sweep_line(const SweepPlan& plan, const SweepOutcomes& outcomes, std::size_t row) {
  const SweepCase& one = plan.cases[row];
  std::string line;
  for (std::size_t column = 0; column < plan.columns.size(); ++column) {
    line += fmt::format("{:>{}}  ", one.values[column], width_of(plan, column));
  }
  if (!outcomes[row]) return line + fmt::format("left out: {}\n", one.cannot);
  const SweepOutcome& outcome = *outcomes[row];
  if (outcome.trouble) return line + fmt::format("failed: {}\n", outcome.trouble->describe());
  const EpochReport& last = outcome.last();
  const auto test = outcome.test();
  const std::string speed = tells_speed_up(plan) ? fmt::format(" {:>9.2f}", speed_up(plan, outcomes, row)) : "";
  return line + fmt::format("{:>8} {:>9.4f} {:>9} {:>9.2f} {:>10.0f}{}  {}{}\n", loss_text(last.train.mean_loss()),
                            last.train.accuracy(), test ? fmt::format("{:.4f}", test->accuracy()) : "-",
                            outcome.seconds(), outcome.images_per_second(), speed, digest_text(last.weights_digest),
                            outcome.oversubscribed ? "  oversubscribed" : "");
}

std::string sweep_foot(const SweepPlan& plan, const SweepOutcomes& outcomes) {
  std::string foot;
  if (tells_speed_up(plan)) {
    foot = fmt::format("speed-up: images/s over the first row of {}\n",
                       plan.compares_ranks ? "fewest ranks with all else equal" : "the same model and data");
  }
  const auto is_crowded = [](const auto& outcome) { return outcome && outcome->oversubscribed; };
  if (std::ranges::any_of(outcomes, is_crowded)) foot += "oversubscribed: more threads than cores, which share them\n";
  if (const auto best = best_row(outcomes, tested_accuracy); best && tested_accuracy(*outcomes[*best]) >= 0) {
    foot += fmt::format("highest test acc {:.4f}: {}, in {:.2f} s\n", tested_accuracy(*outcomes[*best]),
                        choice_text(plan, *best), outcomes[*best]->seconds());
  }
  if (const auto best = best_row(outcomes, [](const SweepOutcome& one) { return one.images_per_second(); })) {
    foot += fmt::format("most images/s {:.0f}: {}\n", outcomes[*best]->images_per_second(), choice_text(plan, *best));
  }
  const auto left_out = std::ranges::count_if(plan.cases, [](const SweepCase& one) { return !one.cannot.empty(); });
  const auto failed = std::ranges::count_if(outcomes, [](const auto& one) { return one && one->trouble; });
  if (left_out + failed == 0) return foot;
  return foot +
         fmt::format("{} of {} left out, {} failed\n", left_out, several(plan.cases.size(), "combination"), failed);
}

Json sweep_row_json(const SweepPlan& plan, const SweepOutcomes& outcomes, std::size_t row) {
  const SweepCase& one = plan.cases[row];
  Json json{{"options", options_json(plan, one)}, {"ranks", one.ranks}};
  if (!outcomes[row]) {
    json["state"] = one.cannot.empty() ? "waiting" : "left out";
    json["reason"] = one.cannot;
    return json;
  }
  const SweepOutcome& outcome = *outcomes[row];
  json["state"] = outcome.trouble ? "failed" : "trained";
  if (outcome.trouble) json["reason"] = outcome.trouble->describe();
  Json epochs = Json::array();
  for (const EpochReport& epoch : outcome.epochs) epochs.push_back(epoch_json(epoch));
  if (!outcome.trouble) {
    Json figures = epochs.back();
    figures.erase("epoch");
    figures["test_loss"] = sums_json(outcome.test(), &LossSums::mean_loss);
    figures["test_acc"] = sums_json(outcome.test(), &LossSums::accuracy);
    figures["seconds"] = outcome.seconds();
    figures["images_per_second"] = outcome.images_per_second();
    json.update(figures);
    json["speed_up"] = speed_up(plan, outcomes, row);
    json["speed_up_over_row"] = compared_with(plan, outcomes, row);
    json["train_images"] = outcome.train_images;
    json["batch_size"] = outcome.config.batch_size;
    json["parts"] = outcome.config.parts;
    json["threads"] = outcome.config.threads;
    json["exchange"] = outcome.config.exchange;
    json["oversubscribed"] = outcome.oversubscribed;
  }
  json["epochs"] = epochs;
  return json;
}

}  // namespace tutti
