#pragma once
// The words of `trainer sweep`: options of a training that take lists, and those of the sweep itself.

#include "../command_line.hpp"
#include "../option_table.hpp"

#include <CLI/CLI.hpp>

#include <string>

namespace tutti {

// What the combinations of a sweep, of which nothing is kept, have a use for.
bool concerns_sweep(const RunOption& option);
// What makes a training another one.
bool makes_training(const RunOption& option);
// Of that, numbers and words that name no files.
bool takes_list(const RunOption& option);

// An option's value as a user writes it.
std::string plain_text(const RunOption& option);

// Keeps the words behind the option in `lists`, to be taken apart by the plan.
CLI::Option* add_list_option(CLI::App& app, const RunOption& option, ListWords& lists);
// Besides the options of a training.
void add_sweep_options(CLI::App& app, Invocation& invocation);

}  // namespace tutti
