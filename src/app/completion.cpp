#include "completion.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <span>
#include <utility>

namespace tutti {
namespace {

// A group of commands, "bench", with those in it; or one of a single word, which has none.
using FirstWords = std::vector<std::pair<std::string, std::vector<const DescribedCommand*>>>;

FirstWords first_words(const std::vector<DescribedCommand>& commands) {
  FirstWords firsts;
  for (const DescribedCommand& command : commands) {
    const std::string first = command.words.substr(0, command.words.find(' '));
    if (firsts.empty() || firsts.back().first != first) firsts.push_back({first, {}});
    firsts.back().second.push_back(&command);
  }
  return firsts;
}

bool is_group(const FirstWords::value_type& first) { return first.second.front()->words != first.first; }

std::string second_word(const DescribedCommand& command) { return command.words.substr(command.words.find(' ') + 1); }

std::string second_words(const FirstWords::value_type& group, const char* between) {
  std::vector<std::string> seconds;
  for (const DescribedCommand* command : group.second) seconds.push_back(second_word(*command));
  return fmt::format("{}", fmt::join(seconds, between));
}

// What is told of a first word.
std::string does(const FirstWords::value_type& first) {
  return is_group(first) ? second_words(first, ", ") : first.second.front()->does;
}

std::string names_of(const FirstWords& firsts, bool groups_alone) {
  std::vector<std::string> names;
  for (const auto& first : firsts) {
    if (!groups_alone || is_group(first)) names.push_back(first.first);
  }
  return fmt::format("{}", fmt::join(names, groups_alone ? " | " : " "));
}

// The program's name as part of a function's.
std::string function_name(const std::string& program) {
  std::string name = "_" + program;
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

// In single quotes, for all of the shells.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

bool completes_files(const DescribedOption& option) { return option.value == "TEXT" && option.takes_others; }

// An option, and the commands in which it has these words.
struct SharedOption {
  DescribedOption option;
  std::vector<std::string> commands{};
};

// By name. Few have other words in one command than in those before it.
std::map<std::string, std::vector<SharedOption>> all_options(const std::vector<DescribedCommand>& commands) {
  std::map<std::string, std::vector<SharedOption>> options;
  for (const DescribedCommand& command : commands) {
    for (const DescribedOption& option : command.options) {
      auto& known = options[option.name];
      auto same = std::ranges::find(known, option.words, [](const SharedOption& one) { return one.option.words; });
      if (same == known.end()) same = known.insert(known.end(), SharedOption{.option = option});
      same->commands.push_back(command.words);
    }
  }
  return options;
}

std::string flags_of(const DescribedCommand& command) {
  std::vector<std::string> flags;
  for (const DescribedOption& option : command.options) flags.push_back("--" + option.name);
  return fmt::format("{}", fmt::join(flags, " "));
}

// Patterns of a command and an option: any command, or these.
std::string bash_patterns(const std::string& option, const std::vector<std::string>& commands) {
  if (commands.empty()) return fmt::format("*' --{}'", option);
  std::vector<std::string> patterns;
  for (const std::string& command : commands) patterns.push_back(fmt::format("'{} --{}'", command, option));
  return fmt::format("{}", fmt::join(patterns, " | "));
}

// What bash offers after an option that takes a value. The first pattern that fits counts: those of one command go
// before those of any.
std::string bash_values(const std::vector<DescribedCommand>& commands) {
  std::string text;
  std::vector<std::string> numbers;
  std::vector<std::string> files;
  for (const auto& [name, shared] : all_options(commands)) {
    for (std::size_t i = shared.size(); i-- > 0;) {
      const DescribedOption& option = shared[i].option;
      if (option.value.empty()) continue;
      const std::string patterns = bash_patterns(name, i == 0 ? std::vector<std::string>{} : shared[i].commands);
      if (!option.words.empty()) {
        text += fmt::format("    {}) {}words={} ;;\n", patterns, completes_files(option) ? "files=1 " : "",
                            quoted(fmt::format("{}", fmt::join(option.words, " "))));
      } else {
        (completes_files(option) ? files : numbers).push_back(patterns);
      }
    }
  }
  return text + fmt::format("    {}) ;;\n    {}) files=1 ;;\n", fmt::join(numbers, " | "), fmt::join(files, " | "));
}

// Where no option's value is wanted: the words of commands, options, or files.
std::string bash_positions(const FirstWords& firsts) {
  std::string text = fmt::format(
      "      if ((COMP_CWORD == 1)) && [[ $word != -* ]]; then\n"
      "        words='{}'\n",
      names_of(firsts, false));
  for (const auto& first : firsts) {
    if (!is_group(first)) continue;
    text += fmt::format(
        "      elif ((COMP_CWORD == 2)) && [[ $before == {} ]]; then\n"
        "        words='{}'\n",
        first.first, second_words(first, " "));
  }
  return text +
         "      elif [[ $word == -* ]]; then\n"
         "        words=$options\n"
         "      else\n"
         "        files=1\n"
         "      fi\n";
}

std::string bash_script(const std::string& program, const std::vector<DescribedCommand>& commands) {
  const FirstWords firsts = first_words(commands);
  std::string options;
  for (const DescribedCommand& command : std::span(commands).subspan(1)) {
    options += fmt::format("    {}) options='{}' ;;\n", quoted(command.words), flags_of(command));
  }
  options += fmt::format("    *) options='{}' ;;\n", flags_of(commands.front()));
  return fmt::format(
      R"(# Completion of {0} in bash, made by: {0} --completion bash
{1}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command=${{COMP_WORDS[1]-}}
  local words='' files='' options
  if [[ $word == '=' ]]; then # bash splits --option=value into three words
    word=
  elif [[ $before == '=' ]]; then
    before=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  case $command in
    {2}) command+=" ${{COMP_WORDS[2]-}}" ;;
  esac
  case $command in
{3}  esac
  case "$command $before" in
{4}    *)
{5}      ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [[ -n $files ]]; then compopt -o default 2>/dev/null; fi
}}
complete -F {1} {0}
)",
      program, function_name(program), names_of(firsts, true), options, bash_values(commands), bash_positions(firsts));
}

// A description inside the brackets, or between the colons, of what zsh's _arguments takes.
std::string zsh_text(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_value(const DescribedOption& option) {
  if (!option.words.empty() && completes_files(option)) {
    return fmt::format(R"({{_alternative 'words\:name\:({})' 'files\:file\:_files'}})", fmt::join(option.words, " "));
  }
  if (!option.words.empty()) return fmt::format("({})", fmt::join(option.words, " "));
  return completes_files(option) ? "_files" : " ";
}

std::string zsh_arguments(const DescribedCommand& command) {
  std::string text = "_arguments";
  for (const DescribedOption& option : command.options) {
    const bool is_flag = option.value.empty();
    const std::string value = is_flag ? "" : fmt::format(":{}:{}", option.name, zsh_value(option));
    text +=
        fmt::format(" \\\n        {}",
                    quoted(fmt::format("--{}{}[{}]{}", option.name, is_flag ? "" : "=", zsh_text(option.help), value)));
  }
  for (const DescribedOption& operand : command.operands) {
    text += fmt::format(" \\\n        {}", quoted(fmt::format("{}:{}:{}", operand.is_list ? "*" : "",
                                                              zsh_text(operand.name), zsh_value(operand))));
  }
  return text;
}

std::string zsh_choices(const FirstWords::value_type& first) {
  std::string text;
  for (const DescribedCommand* command : first.second) {
    text += fmt::format(" {}", quoted(fmt::format("{}:{}", second_word(*command), command->does)));
  }
  return text;
}

std::string zsh_script(const std::string& program, const std::vector<DescribedCommand>& commands) {
  const FirstWords firsts = first_words(commands);
  std::string choices;
  std::string groups;
  std::vector<std::string> lone;
  for (const auto& first : firsts) {
    choices += fmt::format(" {}", quoted(fmt::format("{}:{}", first.first, does(first))));
    if (!is_group(first)) {
      lone.push_back(first.first);
      continue;
    }
    groups += fmt::format(
        "    {0})\n"
        "      local -a seconds=({1})\n"
        "      if ((CURRENT == 3)); then _describe 'command' seconds; return; fi\n"
        "      command=\"{0} $words[3]\"; shift 2 words; ((CURRENT -= 2)) ;;\n",
        first.first, zsh_choices(first));
  }
  std::string arguments;
  for (const DescribedCommand& command : commands) {
    arguments += fmt::format("    {})\n      {} ;;\n", quoted(command.words), zsh_arguments(command));
  }
  return fmt::format(
      R"(#compdef {0}
# Completion of {0} in zsh, made by: {0} --completion zsh
{1}() {{
  local command={2}
  local -a firsts=({3})
  if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then _describe 'command' firsts; return; fi
  case $words[2] in
{4}    {5}) command=$words[2]; shift words; ((CURRENT -= 1)) ;;
  esac
  case $command in
{6}  esac
}}
if [[ $funcstack[1] == {1} ]]; then {1} "$@"; else compdef {1} {0}; fi
)",
      program, function_name(program), commands.front().words, choices, groups, fmt::join(lone, " | "), arguments);
}

// What fish says once for all commands that have the option.
std::string fish_options(const std::string& program, const std::vector<DescribedCommand>& commands) {
  std::string text;
  for (const auto& [name, shared] : all_options(commands)) {
    for (const auto& [option, having] : shared) {
      std::string value;
      if (!option.value.empty()) value = completes_files(option) ? " -r -F" : " -x";
      if (!option.words.empty()) value += fmt::format(" -a '{}'", fmt::join(option.words, " "));
      text += fmt::format("complete -c {} -n 'contains -- (_{}_command) \"{}\"' -l {}{} -d {}\n", program,
                          function_name(program), fmt::join(having, "\" \""), name, value, quoted(option.help));
    }
  }
  return text;
}

std::string fish_script(const std::string& program, const std::vector<DescribedCommand>& commands) {
  const FirstWords firsts = first_words(commands);
  std::string words;
  std::vector<std::string> lone;
  std::vector<std::string> groups;
  for (const auto& first : firsts) {
    (is_group(first) ? groups : lone).push_back(first.first);
    words += fmt::format("complete -c {} -n 'test (count (commandline -opc)) -eq 1' -f -a {} -d {}\n", program,
                         first.first, quoted(does(first)));
    if (!is_group(first)) continue;
    for (const DescribedCommand* command : first.second) {
      words += fmt::format(
          "complete -c {} -n 'test (count (commandline -opc)) -eq 2; and contains -- {} (commandline -opc)' -f -a {} "
          "-d {}\n",
          program, first.first, second_word(*command), quoted(command->does));
    }
  }
  return fmt::format(
      R"(# Completion of {0} in fish, made by: {0} --completion fish
function _{1}_command
    set -l words (commandline -opc) '' ''
    switch $words[2]
        case {2}
            echo "$words[2] $words[3]"
        case {3}
            echo $words[2]
        case '*'
            echo {4}
    end
end
{5}{6})",
      program, function_name(program), fmt::join(groups, " "), fmt::join(lone, " "), commands.front().words, words,
      fish_options(program, commands));
}

}  // namespace

std::string completion_script(std::string_view shell, const std::string& program,
                              const std::vector<DescribedCommand>& commands) {
  std::string script = shell == "bash"  ? bash_script(program, commands)
                       : shell == "zsh" ? zsh_script(program, commands)
                                        : fish_script(program, commands);
  script.pop_back();  // the line's end, which whoever prints it adds
  return script;
}

}  // namespace tutti
