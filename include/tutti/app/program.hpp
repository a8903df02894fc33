#pragma once
// The entry point for custom programs that add their own networks and data sets. All commands and options work with
// them as with the built-in ones.
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

struct CustomData {
  std::string name;  // the value of --data that selects it
  // Called on every rank that uses the data set, once per training or evaluation. All ranks must get equal data: their
  // digests are compared.
  std::function<DataPair()> open;
};

// The networks and data sets of a custom program. An extension overrides a built-in of the same name.
struct Extensions {
  std::vector<NetworkSpec> networks{};  // the first is the default of --model
  std::vector<CustomData> data{};       // the first is the default of --data
};

// Parses the command line, runs the command and returns the process's exit status. Initializes and finalizes MPI. An
// error that `extensions` raises on one rank alone aborts the whole job, and the message names the rank. To be called
// once per process.
int run_program(int argc, const char* const* argv, const Extensions& extensions = {});

}  // namespace tutti
