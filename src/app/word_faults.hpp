#pragma once
// What is wrong with the words of a command line, so that whoever wrote them can mend them.

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace tutti {

// In one line, which ends with `help`. The first word that nothing takes goes before what else is wrong: it may be the
// reason.
std::string fault_of_words(const CLI::App& app, const CLI::ParseError& error, const std::string& help);

// For all options that take numbers: one out of range, or not in decimal digits, is refused.
void take_numbers_as_written(CLI::App& app);

}  // namespace tutti
