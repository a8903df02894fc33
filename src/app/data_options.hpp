#pragma once
// What the command line of trainer data takes: which of the run's options, and its own.

#include "command_line.hpp"
#include "option_table.hpp"

namespace CLI {
class App;
}

namespace tutti {

bool concerns_data(const RunOption& option);
bool concerns_convert(const RunOption& option);
bool concerns_show(const RunOption& option);

void add_source_word(CLI::App& app, Invocation& invocation);
void add_info_words(CLI::App& app, Invocation& invocation);
void add_convert_words(CLI::App& app, Invocation& invocation);
void add_show_options(CLI::App& app, Invocation& invocation);

}  // namespace tutti
