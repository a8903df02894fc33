#pragma once
// What is wrong with the words of a command line or a file, and what may have been meant.

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace tutti {

// The known word that fewest slips lead to: letters left out, added, changed, or swapped with their neighbours. Empty
// where that would take more than one for every three letters.
std::string nearest_word(std::string_view written, const std::vector<std::string>& known);
// What replaced an option or command of earlier versions, in a sentence without its end; empty of other words.
std::string_view moved_to(std::string_view written);
// That, "did you mean 'lenet'? See HELP", or only "see HELP".
std::string what_to_do(std::string_view written, const std::vector<std::string>& known, std::string_view help);

// In one line, which ends with `help`. The first word that nothing takes goes before what else is wrong: it may be the
// reason.
std::string fault_of_words(const CLI::App& app, const CLI::ParseError& error, const std::string& help);

// For all options that take numbers: one out of range, or not in decimal digits, is refused.
void take_numbers_as_written(CLI::App& app);

}  // namespace tutti
