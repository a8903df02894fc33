#include "option_errors.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // edits[i][j]: from the first i characters of a to the first j of b
  std::vector<std::vector<std::size_t>> edits(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      edits[i][j] = i + j;
      if (i == 0 || j == 0) continue;
      const std::size_t changed = edits[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      edits[i][j] = std::min({changed, edits[i - 1][j] + 1, edits[i][j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
    }
  }
  return edits.back().back();
}

// For a missing operand, the message lists all operands.
std::string fault_text(const CLI::App& app, const CLI::ParseError& error) {
  std::string operands;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) operands += " " + option->get_name();
  }
  const bool is_missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  return is_missing && !operands.empty() ? fmt::format("{}: {}{}", error.what(), app.get_name(), operands)
                                         : error.what();
}

[[noreturn]] void refuse(const std::string& option, const std::string& word, const char* wanted) {
  throw CLI::ConversionError(fmt::format("{} cannot be '{}': give {}", option, word, wanted));
}

// CLI11 reads 010 as 8, and replaces numbers out of range by the nearest one in range.
template <class Number>
void settle_number(const std::string& option, std::string& word) {
  constexpr bool kIsWhole = std::is_integral_v<Number>;
  std::string_view digits = word;
  if (digits.size() > 1 && digits.front() == '+' && digits[1] != '-') digits.remove_prefix(1);
  Number number{};
  const char* const end = digits.data() + digits.size();
  const auto [rest, status] = std::from_chars(digits.data(), end, number);
  if (status == std::errc::result_out_of_range) {
    refuse(option, word, kIsWhole ? "an integer from -2^63 to 2^63 - 1" : "0, or a number from 2.3e-308 to 1.7e308");
  }
  if (status != std::errc{} || rest != end) refuse(option, word, kIsWhole ? "an integer" : "a number");
  word = fmt::format("{}", number);
}

void settle_flag(const std::string& option, std::string& word) {
  bool value = false;
  if (!CLI::detail::lexical_cast(word, value)) refuse(option, word, "true or false, or no value");
  word = value ? "true" : "false";
}

// What options of PyTorch's trainers and launchers are here; empty for others.
std::string_view counterpart_of(std::string_view written) {
  constexpr std::pair<std::string_view, std::string_view> kCounterparts[]{
      {"--amp", "--precision bf16 is mixed precision"},
      {"--learning-rate", "it is --lr"},
      {"--drop-last", "it is --last-batch discard"},
      {"--num-workers", "idle cores decode the images; --in-flight sets how many steps are prefetched"},
      {"--sync-bn", "it is --batch-norm global"},
      {"--gradient-accumulation-steps", "use --parts: it cuts each global batch into that many parts"}};
  const auto* const found =
      std::ranges::find(kCounterparts, written, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kCounterparts) ? std::string_view() : found->second;
}

// The known word with the smallest edit distance (letters left out, added, changed, or swapped with their neighbors).
// Empty if that is more than one edit for every three letters.
std::string nearest_word(std::string_view written, const std::vector<std::string>& known) {
  std::string nearest;
  std::size_t smallest = written.size() / 3 + 1;
  for (const std::string& word : known) {
    const std::size_t distance = edit_distance(written, word);
    if (distance >= smallest) continue;
    smallest = distance;
    nearest = word;
  }
  return nearest;
}

}  // namespace

std::string_view moved_to(std::string_view written) {
  constexpr std::string_view kForecast =
      "'trainer forecast FILE --ranks N..M --between US,GBS' forecasts from the file that bench scaling --json writes";
  constexpr std::pair<std::string_view, std::string_view> kMoved[]{
      {"tensorboard", "'trainer tensorboard RUN' makes TensorBoard's files from the run's folder"},
      {"mlperf-log", "'trainer mlperf-log RUN' makes MLPerf's log from the run's folder"},
      {"on-divergence heal",
       "leave it out. A run whose replicas differ ends with 87, and --resume continues it from its newest checkpoint, "
       "to the same bits; the scripts in jobs/ do so by themselves"},
      {"forecast", kForecast},
      {"forecast-from", kForecast},
      {"between", kForecast},
      {"bench layers", "'trainer bench step' times whole steps, ONEDNN_VERBOSE=1 with it each call of oneDNN"}};
  if (written.starts_with("--")) written.remove_prefix(2);
  const auto* const found = std::ranges::find(kMoved, written, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kMoved) ? std::string_view() : found->second;
}

std::string suggestion_for(std::string_view written, const std::vector<std::string>& known, std::string_view help) {
  if (!moved_to(written).empty()) return std::string(moved_to(written));
  if (!counterpart_of(written).empty()) return std::string(counterpart_of(written));
  const std::string nearest = nearest_word(written, known);
  return nearest.empty() ? fmt::format("see {}", help) : fmt::format("did you mean '{}'? See {}", nearest, help);
}

void add_value_checks(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    auto* const settle = option->get_expected_max() == 0 ? settle_flag
                         : type.starts_with("INT")       ? settle_number<std::int64_t>
                         : type.starts_with("FLOAT")     ? settle_number<double>
                                                         : nullptr;
    if (settle == nullptr) continue;
    option->transform(CLI::Validator(
        [settle, name = option->get_name()](std::string& word) {
          settle(name, word);
          return std::string();
        },
        ""));
  }
}

std::string parse_error_text(const CLI::App& app, const CLI::ParseError& error, const std::string& help) {
  std::vector<std::string> left_over = app.remaining();
  std::erase(left_over, "--");
  if (left_over.empty()) return fmt::format("{}; see {}", fault_text(app, error), help);
  const auto is_flag = [](const std::string& word) { return word.starts_with('-'); };
  const auto flag = std::ranges::find_if(left_over, is_flag);
  if (flag == left_over.end()) return fmt::format("unexpected argument '{}': see {}", left_over.front(), help);
  const std::string name = flag->substr(0, flag->find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    if (is_flag(option->get_name())) known.push_back(option->get_name());
  }
  return fmt::format("unknown option '{}': {}", name, suggestion_for(name, known, help));
}

}  // namespace tutti
