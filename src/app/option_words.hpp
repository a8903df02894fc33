#pragma once
// The words of a command line after the command: reads them as options and operands, and prints the help about them.

#include "option_table.hpp"

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

// Text by option, in the order of the words. Of an option that is given again, the last counts.
using GivenWords = std::vector<std::pair<const Option*, std::string>>;

// Reads --name VALUE, --name=VALUE, --flag, --flag=false, operands and, after "--", operands only. Throws a usage error
// of one line, which ends with `help`. An unknown option is reported before other errors, since it may be their cause.
GivenWords read_words(std::span<const std::string> words, const std::vector<Option>& options, const std::string& help);

// The text that was given for an option; empty if there was none.
std::optional<std::string> given_text(const GivenWords& given, const std::string& name);

// As the help shows it; empty for flags, operands and options without a default.
std::string default_of(const Option& option);
// "[OPTIONS] source target" and a line for each operand and option, by groups.
std::string usage_of(const std::vector<Option>& options);
std::string help_of(const std::vector<Option>& options);

}  // namespace tutti
