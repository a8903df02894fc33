#pragma once
// The whole program between main's braces, for a main of one's own that brings networks and data sets along: they are
// trained, evaluated, measured and gone on with as the built-in ones are, by the same commands and options.
//
//   int main(int argc, char** argv) {
//     return tutti::run_program(argc, argv, {.networks = {my_network}, .data = {{"mine", open_mine}}});
//   }

#include "tutti/data/open_data.hpp"
#include "tutti/nn/network_spec.hpp"

#include <functional>
#include <string>
#include <vector>

namespace tutti {

struct OwnData {
  std::string name;  // by which --data asks for it
  // Called on every rank that uses it, for every training and evaluation anew, and with equal results on all: the
  // digests of the sets are compared.
  std::function<DataPair()> open;
};

// What a program has besides the built-in networks and data sets, and before them where names are equal.
struct OwnParts {
  std::vector<NetworkSpec> networks{};  // the first is the default of --model
  std::vector<OwnData> data{};          // the first is the default of --data
};

// Carries out what the words ask for and returns the process's exit status; starts and ends MPI. An error that `own`
// raises on one rank alone ends the whole job, and names the rank. Once per process.
int run_program(int argc, const char* const* argv, const OwnParts& own = {});

}  // namespace tutti
