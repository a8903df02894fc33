#include "word_faults.hpp"

#include "nearest_word.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
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

}  // namespace

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
