#pragma once
// Error messages for names and values in a command line or a file, with suggestions.

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace tutti {

// The replacement of an option or command of earlier versions, as a sentence without a period; empty for other names.
std::string_view moved_to(std::string_view written);
// The replacement, or "did you mean 'lenet'? See HELP", or "see HELP".
std::string suggestion_for(std::string_view written, const std::vector<std::string>& known, std::string_view help);

// One line, which ends with `help`. An unknown word is reported before other errors, since it may be their cause.
std::string parse_error_text(const CLI::App& app, const CLI::ParseError& error, const std::string& help);

// Makes all options with numbers refuse a value that is out of range or not in decimal digits, and flags all but true
// and false.
void add_value_checks(CLI::App& app);

}  // namespace tutti
