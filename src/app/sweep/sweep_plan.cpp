#include "sweep_plan.hpp"

#include "tutti/base/error.hpp"

#include "../assemble.hpp"
#include "../option_table.hpp"
#include "../own_parts.hpp"
#include "../resolve_options.hpp"
#include "sweep_lists.hpp"
#include "sweep_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <set>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

namespace tutti {
namespace {

constexpr std::size_t kMostCases = 10'000;

template <class Number>
Number number_of(const std::string& option, const std::string& text, const char* wanted) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data(), end, number);
  if (status == std::errc{} && rest == end) return number;
  throw Error(ErrorSource::usage, fmt::format("--{} {}: must be {}", option, text, wanted));
}

struct Assign {
  const std::string& option;
  const std::string& text;

  void operator()(std::string* target) const { *target = text; }
  void operator()(std::int64_t* target) const { *target = number_of<std::int64_t>(option, text, "a whole number"); }
  void operator()(double* target) const { *target = number_of<double>(option, text, "a number"); }
  void operator()(bool* /*flags take no lists*/) const {}
};

void set(SweepCase& one, const std::string& option, const std::string& value) {
  if (option == kRanks) {
    one.ranks = number_of<int>(option, value, "a number of ranks");
    return;
  }
  const auto options = run_options(one.config);
  std::visit(Assign{option, value}, std::ranges::find(options, option, &RunOption::name)->target);
}

std::string told(const SweepCase& one, const std::string& option) {
  if (option == kRanks) return fmt::format("{}", one.ranks);
  RunConfig config = one.config;
  const auto options = run_options(config);
  return plain_text(*std::ranges::find(options, option, &RunOption::name));
}

// The user's run, of which nothing is kept.
RunConfig base_of(const Invocation& invocation) {
  RunConfig config = invocation.run;
  RunConfig defaults;
  const auto options = run_options(config);
  const auto untouched = run_options(defaults);
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (concerns_sweep(options[i])) continue;
    std::visit([&](auto* target) { *target = *std::get<std::decay_t<decltype(target)>>(untouched[i].target); },
               options[i].target);
  }
  // As in any training, whichever of the two ends first ends it.
  if (invocation.given.contains("steps") && !invocation.given.contains("epochs")) config.epochs = defaults.epochs;
  return config;
}

struct Drawn {
  std::vector<SweepCase> cases;
  std::vector<std::vector<std::size_t>> picks;  // of each case, by walk
};

// The last walk is the fastest.
std::vector<std::size_t> picks_of(std::size_t number, const SweepLists& lists) {
  std::vector<std::size_t> picks(lists.walks().size());
  for (std::size_t walk = picks.size(); walk-- > 0;) {
    const std::size_t length = lists.length(lists.walks()[walk]);
    picks[walk] = number % length;
    number /= length;
  }
  return picks;
}

Drawn draw(const Invocation& invocation, const SweepLists& lists) {
  std::size_t count = 1;
  for (const Walk& walk : lists.walks()) {
    count *= lists.length(walk);
    if (count <= kMostCases) continue;
    throw Error(ErrorSource::usage, fmt::format("these lists make more than {} combinations: shorten them, or walk "
                                                "some of them --together",
                                                kMostCases));
  }
  Drawn drawn;
  const RunConfig base = base_of(invocation);
  for (std::size_t number = 0; number < count; ++number) {
    SweepCase one{.config = base, .ranks = 1, .values = {}, .cannot = {}, .kin = {}};
    const std::vector<std::size_t> picks = picks_of(number, lists);
    for (std::size_t walk = 0; walk < picks.size(); ++walk) {
      for (const std::size_t place : lists.walks()[walk]) {
        const SweptOption& option = lists.options()[place];
        set(one, option.name, option.values[picks[walk]]);
      }
    }
    fit_defaults(one.config, invocation.given);
    drawn.cases.push_back(std::move(one));
    drawn.picks.push_back(picks);
  }
  return drawn;
}

// What is told is what is used: three times 0.1 is 0.3.
double rounded(double rate) { return number_of<double>("lr", fmt::format("{:.12g}", rate), "a number"); }

void scale_learning_rates(std::vector<SweepCase>& cases, const SweptOption* batch_sizes) {
  if (batch_sizes == nullptr || batch_sizes->values.size() < 2) {
    throw Error(ErrorSource::usage, "--scale-lr wants several values of --batch-size, as --batch-size 64,128");
  }
  const auto first = static_cast<double>(cases.front().config.batch_size);
  if (!(first > 0)) return;  // refused by its name later on
  for (SweepCase& one : cases) {
    one.config.lr = rounded(one.config.lr * static_cast<double>(one.config.batch_size) / first);
  }
}

// Words and numbers that no run takes.
std::optional<Error> mistake_in(RunConfig config) {
  try {
    refuse_unknown_words(config);
    if (config.exchange == "auto") config.exchange = "ring";
    resolve_options(config, choose_model(config));
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

std::optional<Error> misfit_of(RunConfig config, int ranks) {
  try {
    settle_parts(config, ranks, 1);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// A combination that cannot be is left out; a value that is right in none is the user's mistake.
void leave_out(Drawn& drawn, const SweepLists& lists) {
  std::vector<std::optional<Error>> mistakes;
  for (SweepCase& one : drawn.cases) {
    mistakes.push_back(mistake_in(one.config));
    const auto reason = mistakes.back() ? mistakes.back() : misfit_of(one.config, one.ranks);
    if (reason) one.cannot = reason->what();
  }
  for (std::size_t walk = 0; walk < lists.walks().size(); ++walk) {
    for (std::size_t pick = 0; pick < lists.length(lists.walks()[walk]); ++pick) {
      const Error* first = nullptr;
      bool is_right = false;
      for (std::size_t i = 0; i < drawn.cases.size(); ++i) {
        if (drawn.picks[i][walk] != pick) continue;
        is_right = is_right || !mistakes[i];
        if (first == nullptr && mistakes[i]) first = &*mistakes[i];
      }
      if (!is_right) throw Error(*first);
    }
  }
  const auto can = [](const SweepCase& one) { return one.cannot.empty(); };
  if (std::ranges::none_of(drawn.cases, can)) throw Error(ErrorSource::usage, drawn.cases.front().cannot);
}

std::vector<std::string> columns_of(const SweepLists& lists, bool scales_lr) {
  std::set<std::string> differ;
  for (const SweptOption& option : lists.options()) {
    if (option.values.size() > 1) differ.insert(option.name);
  }
  if (scales_lr) differ.insert("lr");
  std::vector<std::string> columns;
  RunConfig any;
  for (const RunOption& option : run_options(any)) {
    if (differ.contains(option.name)) columns.push_back(option.name);
  }
  columns.emplace_back(kRanks);
  return columns;
}

std::string words_for_all(const Invocation& invocation, const SweepPlan& plan) {
  std::vector<std::string> words;
  RunConfig config = plan.cases.front().config;
  const auto is_told = [&](const RunOption& option) {
    if (option.name == "model" || option.name == "data") return true;
    if (option.name == "epochs") return config.steps == 0;
    return makes_training(option) && invocation.given.contains(option.name);
  };
  for (const RunOption& option : run_options(config)) {
    if (!is_told(option) || std::ranges::find(plan.columns, option.name) != plan.columns.end()) continue;
    words.push_back(option.name + " " + plain_text(option));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

SweepPlan plan_sweep(const Invocation& invocation, int ranks) {
  const SweepRequest& request = invocation.sweep;
  const SweepLists lists(request, ranks);
  Drawn drawn = draw(invocation, lists);
  if (request.scale_lr) scale_learning_rates(drawn.cases, lists.find("batch-size"));
  leave_out(drawn, lists);

  SweepPlan plan{.columns = columns_of(lists, request.scale_lr),
                 .for_all = {},
                 .compares_ranks = lists.crosses_ranks(),
                 .cases = std::move(drawn.cases)};
  for (SweepCase& one : plan.cases) {
    for (const std::string& column : plan.columns) {
      one.values.push_back(told(one, column));
      const bool is_work = column == "model" || column == "data" || column == "image-size";
      if (plan.compares_ranks ? column != kRanks : is_work) one.kin += one.values.back() + '\n';
    }
  }
  plan.for_all = words_for_all(invocation, plan);
  return plan;
}

}  // namespace tutti
