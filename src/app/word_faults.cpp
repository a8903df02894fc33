#include "word_faults.hpp"

#include "nearest_word.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

namespace tutti {
namespace {

// What CLI11 says of a value that is no number is "WHAT: NAME = VALUE".
std::string fault_of_value(const CLI::App& app, const std::string& said) {
  const std::size_t colon = said.find(": ");
  const std::size_t equals = said.find(" = ", colon);
  if (colon == std::string::npos || equals == std::string::npos) return said;
  const std::string name = said.substr(colon + 2, equals - colon - 2);
  const CLI::Option* option = app.get_option_no_throw(name);
  if (option == nullptr) return said;
  const std::string value = said.substr(equals + 3);
  const bool is_whole = option->get_type_name().find("INT") != std::string::npos;
  const char* wanted = is_whole ? "a whole number" : "a number";
  if (option->get_expected_max() == 0) wanted = "true or false, or no value";
  return fmt::format("{} cannot be '{}': give {}", name, value, wanted);
}

std::string missing_text(const CLI::App& app, const CLI::ParseError& error) {
  std::string words;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) words += " " + option->get_name();
  }
  return words.empty() ? error.what() : fmt::format("{}: {}{}", error.what(), app.get_name(), words);
}

std::string told_fault(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) return fault_of_value(app, error.what());
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) return missing_text(app, error);
  return error.what();
}

// CLI11 takes 010 for 8, and for a number out of range the one next to it.
template <class Number>
void settle_number(const std::string& option, std::string& word) {
  const auto refuse = [&](const char* wanted) {
    throw CLI::ConversionError(fmt::format("{} cannot be '{}': give {}", option, word, wanted));
  };
  constexpr bool kIsWhole = std::is_integral_v<Number>;
  std::string_view digits = word;
  if (digits.size() > 1 && digits.front() == '+' && digits[1] != '-') digits.remove_prefix(1);
  Number number{};
  const char* const end = digits.data() + digits.size();
  const auto [rest, status] = std::from_chars(digits.data(), end, number);
  if (status == std::errc::result_out_of_range) {
    refuse(kIsWhole ? "a whole number from -2^63 to 2^63 - 1" : "0, or a number from 2.3e-308 to 1.7e308");
  }
  if (status != std::errc{} || rest != end) refuse(kIsWhole ? "a whole number" : "a number");
  if constexpr (kIsWhole) word = fmt::format("{}", number);
}

}  // namespace

void take_numbers_as_written(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool is_whole = type.starts_with("INT");
    if (option->get_expected_max() == 0 || (!is_whole && !type.starts_with("FLOAT"))) continue;
    const auto settle = [is_whole, name = option->get_name()](std::string& word) {
      is_whole ? settle_number<std::int64_t>(name, word) : settle_number<double>(name, word);
      return std::string();
    };
    option->transform(CLI::Validator(settle, ""));
  }
}

std::string fault_of_words(const CLI::App& app, const CLI::ParseError& error, const std::string& help) {
  std::vector<std::string> left_over = app.remaining();
  std::erase(left_over, "--");
  if (left_over.empty()) return fmt::format("{}; see {}", told_fault(app, error), help);
  const auto is_flag = [](const std::string& word) { return word.starts_with('-'); };
  const auto flag = std::ranges::find_if(left_over, is_flag);
  if (flag == left_over.end()) return fmt::format("'{}' belongs to no option: see {}", left_over.front(), help);
  const std::string name = flag->substr(0, flag->find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    if (is_flag(option->get_name())) known.push_back(option->get_name());
  }
  return fmt::format("no option is called '{}' here: {}", name, what_to_do(name, known, help));
}

}  // namespace tutti
