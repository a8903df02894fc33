#pragma once
// The networks and data sets that the program was given, found by the words of --model and --data.

#include "tutti/app/program.hpp"

#include "run_config.hpp"

namespace tutti {

// Own names go before built-in ones; a word with a slash, or that ends in .toml, is the path of a model file.
NetworkSpec choose_model(const RunConfig& config);

// Null where --data names no set of the program's own. Throws a usage error for options about sets that are read.
const OwnData* find_own_data(const RunConfig& config);
// Throws an input error that names the set when it holds no samples, or has no labels where they are wanted.
DataPair open_own(const OwnData& data, bool unlabelled_too = false);

}  // namespace tutti
