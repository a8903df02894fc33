#pragma once
// What the command line understands, as data: for the manual page, and for completion by shells.

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tutti {

struct OwnParts;

struct DescribedOption {
  std::string name;  // without the dashes; an operand's: as help has it
  std::string group{};
  std::string help{};
  std::string value{};               // TEXT, INT, FLOAT or LIST; empty: a flag
  std::string default_value{};       // empty where it has none
  std::vector<std::string> words{};  // values that can be named
  bool takes_others = false;         // values besides these
  bool is_required = false;
  bool is_list = false;  // of an operand: any number of them
};

struct DescribedCommand {
  std::string words;  // "train", "bench step"
  std::string does;
  std::vector<DescribedOption> operands{};
  std::vector<DescribedOption> options{};
};

// All commands, the default one first. `own` may be null.
std::vector<DescribedCommand> describe_commands(const OwnParts* own);

// As parse_command_line() furnishes each of them, and in its file.
struct FurnishedCommand {
  const char* words;
  const char* does;
  const CLI::App& app;
};
void visit_commands(const OwnParts* own, const std::function<void(const FurnishedCommand&)>& visit);

}  // namespace tutti
