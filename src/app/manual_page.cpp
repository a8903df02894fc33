#include "manual_page.hpp"

#include "tutti/base/version.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

namespace tutti {
namespace {

// Every hyphen is one that can be copied, and no line begins with a request.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool begins_line = result.empty() || result.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) result += "\\&";
    if (c == '-') result += '\\';
    result += c == '\\' ? std::string("\\e") : std::string(1, c);
  }
  return result;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string option_text(const DescribedOption& option) {
  const std::string value = option.value.empty() ? "" : " \\fI" + option.value + "\\fR";
  const std::string by_default = option.default_value.empty() ? "" : " [" + option.default_value + "]";
  return fmt::format(".TP\n\\fB\\-\\-{}\\fR{}\n{}\n", roff(option.name), value, roff(option.help + by_default));
}

std::string synopsis_of(const std::string& program, const DescribedCommand& command) {
  std::string text = fmt::format("\\fB{} {}\\fR", roff(program), roff(command.words));
  for (const DescribedOption& operand : command.operands) {
    const std::string name = fmt::format("\\fI{}\\fR{}", roff(upper(operand.name)), operand.is_list ? "..." : "");
    text += operand.is_required ? " " + name : " [" + name + "]";
  }
  return text + (command.options.empty() ? "" : " [\\fIOPTION\\fR]...");
}

// The default command's options, group by group.
std::string grouped_options(const DescribedCommand& command) {
  std::vector<std::string> groups;
  for (const DescribedOption& option : command.options) {
    if (std::ranges::find(groups, option.group) == groups.end()) groups.push_back(option.group);
  }
  std::string text;
  for (const std::string& group : groups) {
    text += fmt::format(".SS {}\n", roff(group == "Options" ? "Texts" : group));
    for (const DescribedOption& option : command.options) {
      if (option.group == group) text += option_text(option);
    }
  }
  return text;
}

std::string names_of(const std::vector<const DescribedOption*>& options) {
  std::vector<std::string> names;
  for (const DescribedOption* option : options) names.push_back(fmt::format("\\fB\\-\\-{}\\fR", roff(option->name)));
  return fmt::format("{}", fmt::join(names, ", "));
}

// One of the same name may be about something else.
bool has(const DescribedCommand& command, const DescribedOption& option) {
  return std::ranges::any_of(
      command.options, [&](const DescribedOption& one) { return one.name == option.name && one.help == option.help; });
}

// What a command has in common with the default one, by name: these options, or all but those.
std::string shared_options(const DescribedCommand& command, const DescribedCommand& base) {
  std::vector<const DescribedOption*> shared;
  std::vector<const DescribedOption*> missing;
  for (const DescribedOption& option : base.options) (has(command, option) ? shared : missing).push_back(&option);
  if (shared.empty()) return "";
  if (missing.size() >= shared.size()) return fmt::format(".PP\nAnd of {}: {}.\n", roff(base.words), names_of(shared));
  return fmt::format(".PP\nAnd all of {} but {}.\n", roff(base.words), names_of(missing));
}

std::string other_command(const std::string& program, const DescribedCommand& command, const DescribedCommand& base) {
  std::string text = fmt::format(".SS {}\n{}\n.PP\n{}{}.\n", roff(command.words), synopsis_of(program, command),
                                 roff(upper(command.does.substr(0, 1))), roff(command.does.substr(1)));
  for (const DescribedOption& operand : command.operands) {
    text += fmt::format(".TP\n\\fI{}\\fR\n{}\n", roff(upper(operand.name)), roff(operand.help));
  }
  for (const DescribedOption& option : command.options) {
    if (!has(base, option)) text += option_text(option);
  }
  return text + shared_options(command, base);
}

struct Entry {
  const char* what;
  const char* text;
};

std::string entry(const std::string& what, const std::string& text) {
  return fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(what), roff(text));
}

std::string entries(std::span<const Entry> list) {
  std::string text;
  for (const Entry& one : list) text += entry(one.what, one.text);
  return text;
}

struct Example {
  const char* launcher;
  const char* options;
  const char* does;
};

constexpr std::array kExamples{
    Example{"mpirun -np 4", "", "trains a small network on digits that the program draws itself"},
    Example{"mpirun -np 4", " --parts 8 --out runs/a",
            "cuts every batch into 8 parts, whose bits are the same on 1 to 8 ranks, and keeps checkpoints"},
    Example{"mpirun -np 3", " --resume --out runs/a", "goes on from the newest good one of them"},
    Example{"srun", " --config run.toml --device cuda", "under Slurm, with options from a file"}};

constexpr std::array kFiles{
    Entry{"OUT/checkpoints/step-*.h5", "checkpoints, each with a manifest .json beside it"},
    Entry{"OUT/metrics.jsonl", "a JSON object for every epoch, and for whatever else is to be recorded"},
    Entry{"OUT/config.toml", "the resolved options, as --config reads them"},
    Entry{"OUT/exit.json", "left by the first rank that failed, since launchers hide statuses"}};

constexpr std::array kEnvironment{
    Entry{"TUTTI_DATA", "folder in which --data looks for names that are neither here nor in ./data"}};

}  // namespace

std::string manual_page(const std::string& program, const std::vector<DescribedCommand>& commands,
                        const std::string& statuses) {
  const DescribedCommand& base = commands.front();
  std::string page = fmt::format(
      ".TH \"{}\" 1 \"\" \"Tutti {}\" \"User Commands\"\n"
      ".nh\n.ad l\n"
      ".SH NAME\n{} \\- trains image classifiers on MPI ranks\n"
      ".SH SYNOPSIS\n\\fBmpirun \\-np\\fR \\fIRANKS\\fR {}\n",
      roff(upper(program)), roff(std::string(version())), roff(program), synopsis_of(program, base));
  page += fmt::format(".br\n\\fB{} \\fICOMMAND\\fR [\\fIOPTION\\fR]...\n", roff(program));
  page += fmt::format(".SH DESCRIPTION\n{}\n",
                      roff(fmt::format("One rank per GPU or CPU slot computes its share of every batch, gradients meet "
                                       "in a sum over the ranks, and the state is kept in HDF5 files. The command {} "
                                       "may be left out. Every option has a default, in brackets here.",
                                       base.words)));
  page += fmt::format(".SH OPTIONS\n{}.SH OTHER COMMANDS\n", grouped_options(base));
  for (const DescribedCommand& command : std::span(commands).subspan(1)) page += other_command(program, command, base);
  page += ".SH EXAMPLES\n";
  for (const Example& example : kExamples) {
    page += entry(fmt::format("{} {}{}", example.launcher, program, example.options), example.does);
  }
  page += fmt::format(".SH EXIT STATUS\n{}\n", roff(statuses.substr(statuses.find(": ") + 2)));
  page += fmt::format(".SH FILES\n{}.SH ENVIRONMENT\n{}", entries(kFiles), entries(kEnvironment));
  return page + ".SH SEE ALSO\n\\fBmpirun\\fR(1), \\fBsrun\\fR(1), \\fBh5dump\\fR(1)";
}

}  // namespace tutti
