#include "sweep_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <variant>

namespace tutti {
namespace {

bool is_any_of(const std::string& word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

bool concerns_sweep(const RunOption& option) {
  if (is_any_of(option.group, {"Keeping", "Watching"})) {
    return is_any_of(option.name, {"config", "test-every", "progress", "quiet"});
  }
  return option.name != "rehearse";
}

bool makes_training(const RunOption& option) {
  return is_any_of(option.group, {"Data", "Network", "Training", "Ranks and devices"});
}

bool takes_list(const RunOption& option) {
  return makes_training(option) && !std::holds_alternative<bool*>(option.target) &&
         !is_any_of(option.name, {"test-data", "init-from", "plan-cache"});
}

std::string plain_text(const RunOption& option) {
  return std::visit([](const auto* target) { return fmt::format("{}", *target); }, option.target);
}

CLI::Option* add_list_option(CLI::App& app, const RunOption& option, ListWords& lists) {
  // A word that follows the first is not taken for one more value: it may be a mistake.
  return app.add_option("--" + option.name, lists[option.name], option.help)
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->default_str(plain_text(option));
}

void add_sweep_options(CLI::App& app, Invocation& invocation) {
  SweepRequest& sweep = invocation.sweep;
  invocation.run.epochs = 1;  // unless others are asked for: short trainings
  app.add_option("--ranks", sweep.words["ranks"], "counts of ranks to train on, as 1,2,4; none: all of this launch")
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->group("Sweep");
  app.add_option("--together", sweep.together,
                 "lists that are walked item by item instead of crossed, as ranks,batch-size; may be given again")
      ->allow_extra_args(false)
      ->type_name("NAMES")
      ->group("Sweep");
  app.add_flag("--scale-lr", sweep.scale_lr,
               "the learning rate grows with --batch-size: what is given is that of its first value")
      ->group("Sweep");
  app.add_option("--json", invocation.json, "write the results to this file, too, after every row")->group("Results");
}

}  // namespace tutti
