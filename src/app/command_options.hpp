#pragma once
// What the command line of each command takes: which of the run's options, and its own. Those of trainer data are in
// data_options.hpp.

#include "command_line.hpp"
#include "option_table.hpp"

namespace CLI {
class App;
}

namespace tutti {

bool concerns_train(const RunOption& option);
bool concerns_nothing(const RunOption& option);
bool concerns_eval(const RunOption& option);
bool concerns_predict(const RunOption& option);
bool concerns_bench_step(const RunOption& option);
bool concerns_bench(const RunOption& option);
bool concerns_bench_input(const RunOption& option);
bool concerns_bench_exchange(const RunOption& option);
bool concerns_bench_allreduce(const RunOption& option);
bool concerns_tour(const RunOption& option);

void add_no_options(CLI::App& app, Invocation& invocation);
void add_json_option(CLI::App& app, Invocation& invocation);
void add_eval_options(CLI::App& app, Invocation& invocation);
void add_predict_options(CLI::App& app, Invocation& invocation);
void add_allreduce_options(CLI::App& app, Invocation& invocation);
void add_checkpoint_options(CLI::App& app, Invocation& invocation);
void add_input_options(CLI::App& app, Invocation& invocation);
void add_step_options(CLI::App& app, Invocation& invocation);
void add_exchange_options(CLI::App& app, Invocation& invocation);
void add_scaling_options(CLI::App& app, Invocation& invocation);
void add_compared_words(CLI::App& app, Invocation& invocation);
void add_inspect_options(CLI::App& app, Invocation& invocation);
void add_tour_options(CLI::App& app, Invocation& invocation);

}  // namespace tutti
