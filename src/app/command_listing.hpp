#pragma once
// What the command line understands, as data: the manual page and the completion of shells are made of it by
// tools/companions/command-texts.

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace tutti {

struct OwnParts;

// JSON: the program's name and version, the exit statuses, and every command with its operands and options, the default
// one first; of companions only their words, what they do, and their paths. `own` may be null.
std::string command_listing(const std::string& program, const OwnParts* own);

// Calls `visit` for every command, as parse_command_line() furnishes it, and in its file.
struct FurnishedCommand {
  const char* words;
  const char* does;
  const CLI::App& app;
};
void visit_commands(const OwnParts* own, const std::function<void(const FurnishedCommand&)>& visit);

// Also at the end of every help.
extern const char* const kStatuses;

}  // namespace tutti
