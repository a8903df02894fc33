#pragma once
// Which trainings a sweep is made of: lists crossed, or walked together item by item, in the order of a table. What
// cannot be trained is found here, before anything is.

#include "../command_line.hpp"

#include <string>
#include <vector>

namespace tutti {

struct SweepCase {
  RunConfig config;
  int ranks = 1;
  std::vector<std::string> values;  // by column
  std::string cannot;               // why it is left out; empty: it can be trained
  std::string kin;                  // rows of the same one are compared in speed, with the first that was trained
};

struct SweepPlan {
  std::vector<std::string> columns;  // options that differ from row to row
  std::string for_all;               // what does not, in words
  bool compares_ranks = false;       // each row's speed with that of fewer ranks, all else equal
  std::vector<SweepCase> cases;
};

// For a launch of so many ranks. Throws a usage error that names the option and its value for words that no combination
// can have, and where every combination is left out.
SweepPlan plan_sweep(const Invocation& invocation, int ranks);

}  // namespace tutti
