#pragma once
// The commands of the program, each of which is one row.

#include "tutti/base/error.hpp"
#include "tutti/comm/world.hpp"

#include "command_line.hpp"
#include "option_table.hpp"
#include "program.hpp"

#include <span>

namespace CLI {
class App;
}

namespace tutti {

// Whether a watch ends the job when its ranks stall. Reading and writing of data takes as long as it takes, and so does
// what a process measures by itself.
enum class Watched { never, launched, always };

struct Command {
  const char* words;  // as users write it: "bench step"
  const char* does;
  Watched watched;
  ExitStatus (*run)(World&, const Invocation&, EndRecord&);
  bool (*takes)(const RunOption&);                  // which options of a run
  void (*add_own_options)(CLI::App&, Invocation&);  // besides those
};

// The default one first.
std::span<const Command> commands();

}  // namespace tutti
