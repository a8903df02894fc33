#include "option_words.hpp"

#include "tutti/base/error.hpp"

#include "option_errors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

namespace tutti {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& help) {
  throw Error(ErrorSource::usage, fmt::format("{}; see {}", what, help));
}

class WordReader {
 public:
  WordReader(const std::vector<Option>& options, const std::string& help) : options_(options), help_(help) {}

  void read(std::span<const std::string> words) {
    bool are_operands = false;
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string& word = words[i];
      if (word == "--" && !are_operands) {
        are_operands = true;
      } else if (are_operands || !word.starts_with('-') || word == "-") {
        add_operand(word);
      } else if (const Option* const option = option_of(word); option != nullptr) {
        i += read_option(*option, word, words.subspan(i + 1)) ? 1 : 0;
      } else if (unknown_.empty()) {
        unknown_ = word.substr(0, word.find('='));
      }
    }
  }

  // Throws the first error, unless the help is asked for.
  GivenWords finish() {
    if (given_text(given_, "help")) return std::move(given_);
    if (!unknown_.empty()) {
      std::vector<std::string> known;
      for (const Option& option : options_) {
        if (!option.is_operand) known.push_back("--" + option.name);
      }
      throw Error(ErrorSource::usage,
                  fmt::format("unknown option '{}': {}", unknown_, suggestion_for(unknown_, known, help_)));
    }
    if (unexpected_) refuse_unexpected();
    if (!without_value_.empty()) refuse(without_value_ + " needs a value", help_);
    for (const Option& option : options_) {
      if (option.is_required && !given_text(given_, option.name)) refuse_missing(option);
    }
    return std::move(given_);
  }

 private:
  const Option* option_of(const std::string& word) const {
    const std::string name = word == "-h" ? "help" : word.substr(std::min<std::size_t>(word.size(), 2));
    const bool is_long = word == "-h" || word.starts_with("--");
    const auto found = std::ranges::find_if(options_, [&](const Option& option) {
      return !option.is_operand && option.name == name.substr(0, name.find('='));
    });
    return is_long && found != options_.end() ? &*found : nullptr;
  }

  // Returns whether the next word is the value.
  bool read_option(const Option& option, const std::string& word, std::span<const std::string> next) {
    if (const std::size_t equals = word.find('='); equals != std::string::npos) {
      add(option, word.substr(equals + 1));
      return false;
    }
    if (option.value.type == ValueType::flag) {
      add(option, "true");
      return false;
    }
    if (next.empty() || next.front().starts_with("--")) {
      if (without_value_.empty()) without_value_ = word;
      return false;
    }
    add(option, next.front());
    return true;
  }

  void add_operand(const std::string& word) {
    const auto found = std::ranges::find_if(options_, [&](const Option& option) {
      return option.is_operand && (option.is_list || !given_text(given_, option.name));
    });
    if (found != options_.end()) {
      add(*found, word);
    } else if (!unexpected_) {
      unexpected_ = word;
    }
  }

  void add(const Option& option, std::string text) {
    if (!option.is_list) std::erase_if(given_, [&](const auto& other) { return other.first == &option; });
    given_.emplace_back(&option, std::move(text));
  }

  [[noreturn]] void refuse_unexpected() const {
    const auto missing = std::ranges::find_if(options_, [&](const Option& option) {
      return option.is_required && !option.is_operand && !given_text(given_, option.name);
    });
    const std::string meant = missing == options_.end() || unexpected_->empty()
                                  ? "see"
                                  : fmt::format("did you mean --{} {}? See", missing->name, *unexpected_);
    throw Error(ErrorSource::usage, fmt::format("unexpected argument '{}': {} {}", *unexpected_, meant, help_));
  }

  [[noreturn]] void refuse_missing(const Option& missing) const {
    if (!missing.is_operand) refuse(fmt::format("--{} is required", missing.name), help_);
    std::vector<std::string> operands;
    for (const Option& option : options_) {
      if (option.is_operand) operands.push_back(option.name);
    }
    refuse(fmt::format("{} is required: {} {}", missing.name, help_.substr(0, help_.rfind(" --help")),
                       fmt::join(operands, " ")),
           help_);
  }

  const std::vector<Option>& options_;
  const std::string& help_;
  GivenWords given_;
  std::string unknown_;
  std::optional<std::string> unexpected_;
  std::string without_value_;
};

// "--lr FLOAT=0.05", "source TEXT REQUIRED", "-h,--help".
std::string left_column(const Option& option) {
  std::string text = fmt::format("{}{}", option.is_operand ? "" : option.name == "help" ? "-h,--" : "--", option.name);
  if (option.value.type == ValueType::flag) return text;
  text += fmt::format(" {}", name_of(option.value.type));
  if (option.is_list) return text + " ...";
  if (option.is_required) return text + " REQUIRED";
  const std::string value = default_of(option);
  return value.empty() ? text : fmt::format("{}={}", text, value);
}

}  // namespace

GivenWords read_words(std::span<const std::string> words, const std::vector<Option>& options, const std::string& help) {
  WordReader reader(options, help);
  reader.read(words);
  return reader.finish();
}

std::optional<std::string> given_text(const GivenWords& given, const std::string& name) {
  const auto found = std::ranges::find_if(given, [&](const auto& word) { return word.first->name == name; });
  return found == given.end() ? std::nullopt : std::optional(found->second);
}

std::string default_of(const Option& option) {
  if (option.value.type == ValueType::flag || option.is_operand) return {};
  return option.shown_default.value_or(option.value.read());
}

std::string usage_of(const std::vector<Option>& options) {
  std::string usage = "[OPTIONS]";
  for (const Option& option : options) {
    if (option.is_operand) usage += option.is_required ? " " + option.name : fmt::format(" [{}...]", option.name);
  }
  return usage;
}

std::string help_of(const std::vector<Option>& options) {
  constexpr std::size_t kColumn = 30;
  std::string text;
  std::string_view group = "none";
  for (const Option& option : options) {
    if (option.help.empty()) continue;
    if (option.group != group) text += fmt::format("\n{}:\n", option.group);
    group = option.group;
    const std::string left = "  " + left_column(option);
    text += left.size() < kColumn ? fmt::format("{:<{}}", left, kColumn) : fmt::format("{}\n{:<{}}", left, "", kColumn);
    text += option.help + "\n";
  }
  return text;
}

}  // namespace tutti
