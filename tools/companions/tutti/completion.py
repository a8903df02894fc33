"""Scripts that complete the trainer's command line in bash, zsh and fish."""

import re
import string

from tutti.listing import is_group


class Script(string.Template):
    """A template with @NAME for a variable, since shells use the dollar sign."""

    delimiter = "@"


def function_name(listing):
    return "_" + re.sub(r"[^A-Za-z0-9]", "_", listing.program)


def quoted(text):
    """Returns the text in single quotes, for all three shells."""
    return "'" + text.replace("'", "'\\''") + "'"


def words_of_groups(listing, between):
    return between.join(first for first, commands in listing.groups().items() if is_group(first, commands))


def words_of_others(listing, between):
    return between.join(first for first, commands in listing.groups().items() if not is_group(first, commands))


def seconds(commands, between):
    return between.join(command.second for command in commands)


def summary_of(first, commands):
    return seconds(commands, ", ") if is_group(first, commands) else commands[0].does


def options_by_name(listing):
    """Returns (name, [(option, the commands in which it has this text)]). Few options differ between commands."""
    options = {}
    for command in listing.commands:
        for option in command.options:
            known = options.setdefault(option.name, [])
            same = next((shared for shared in known if shared[0].words == option.words), None)
            if same is None:
                same = (option, [])
                known.append(same)
            same[1].append(command.words)
    return sorted(options.items())


def bash_values(listing):
    """Completes the value of an option. The first matching pattern counts, so those of one command are first."""
    lines, numbers, files = [], [], []
    for name, shared in options_by_name(listing):
        for i, (option, commands) in reversed(list(enumerate(shared))):
            if not option.value:
                continue
            pattern = f"*' --{name}'" if i == 0 else " | ".join(f"'{words} --{name}'" for words in commands)
            if option.words:
                also_files = "files=1 " if option.paths else ""
                lines.append(f"    {pattern}) {also_files}words={quoted(' '.join(option.words))} ;;")
            else:
                (files if option.paths else numbers).append(pattern)
    lines += [f"    {' | '.join(patterns)}) {then};;" for patterns, then in ((numbers, ""), (files, "files=1 "))
              if patterns]
    return "\n".join(lines)


def bash(listing):
    def flags(command):
        return " ".join(f"--{option.name}" for option in command.options)

    options = "".join(f"    {quoted(command.words)}) options='{flags(command)}' ;;\n"
                      for command in listing.commands[1:])
    seconds_of_groups = "".join(
        f"      elif ((COMP_CWORD == 2)) && [[ $before == {first} ]]; then\n        words='{seconds(commands, ' ')}'\n"
        for first, commands in listing.groups().items() if is_group(first, commands))
    return Script(r"""# Completion of @program in bash, made by: @program --completion bash
@function() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]-}
  local words='' files='' options
  if [[ $word == '=' ]]; then # bash splits --option=value into three words
    word=
  elif [[ $before == '=' ]]; then
    before=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  case $command in
    @groups) command+=" ${COMP_WORDS[2]-}" ;;
  esac
  case $command in
@{options}    *) options='@default' ;;
  esac
  case "$command $before" in
@values
    *)
      if ((COMP_CWORD == 1)) && [[ $word != -* ]]; then
        words='@firsts'
@{seconds}      elif [[ $word == -* ]]; then
        words=$options
      else
        files=1
      fi
      ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [[ -n $files ]]; then compopt -o default 2>/dev/null; fi
}
complete -F @function @program
""").substitute(program=listing.program, function=function_name(listing), groups=words_of_groups(listing, " | "),
                options=options, default=flags(listing.commands[0]), values=bash_values(listing),
                firsts=" ".join(listing.groups()), seconds=seconds_of_groups)


def zsh_value(option):
    words = " ".join(option.words)
    if option.words and option.paths:
        return rf"{{_alternative 'words\:name\:({words})' 'files\:file\:_files'}}"
    if option.words:
        return f"({words})"
    return "_files" if option.paths else " "


def zsh_arguments(command):
    def escaped(text):
        return re.sub(r"([\[\]:\\])", r"\\\1", text)

    arguments = [f"--{option.name}{'=' if option.value else ''}[{escaped(option.help)}]"
                 + (f":{option.name}:{zsh_value(option)}" if option.value else "") for option in command.options]
    arguments += [f"{'*' if operand.list else ''}:{escaped(operand.name)}:{zsh_value(operand)}"
                  for operand in command.operands]
    return " \\\n        ".join(["_arguments", *map(quoted, arguments)])


def zsh(listing):
    def choices(named):
        return " ".join(quoted(f"{word}:{does}") for word, does in named)

    groups = "".join(
        f"    {first})\n      local -a seconds=({choices((each.second, each.does) for each in commands)})\n"
        "      if ((CURRENT == 3)); then _describe 'command' seconds; return; fi\n"
        f"      command=\"{first} $words[3]\"; shift 2 words; ((CURRENT -= 2)) ;;\n"
        for first, commands in listing.groups().items() if is_group(first, commands))
    return Script(r"""#compdef @program
# Completion of @program in zsh, made by: @program --completion zsh
@function() {
  local command=@default
  local -a firsts=(@firsts)
  if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then _describe 'command' firsts; return; fi
  case $words[2] in
@{groups}    @others) command=$words[2]; shift words; ((CURRENT -= 1)) ;;
  esac
  case $command in
@{arguments}  esac
}
if [[ $funcstack[1] == @function ]]; then @function "$@"; else compdef @function @program; fi
""".replace('"$@"', '"$@@"')).substitute(
        program=listing.program, function=function_name(listing), default=listing.commands[0].words,
        firsts=choices((first, summary_of(first, commands)) for first, commands in listing.groups().items()),
        groups=groups, others=words_of_others(listing, " | "),
        arguments="".join(f"    {quoted(command.words)})\n      {zsh_arguments(command)} ;;\n"
                          for command in listing.commands))


def fish(listing):
    program = listing.program
    lines = []
    for first, commands in listing.groups().items():
        lines.append(f"complete -c {program} -n 'test (count (commandline -opc)) -eq 1' -f -a {first} "
                     f"-d {quoted(summary_of(first, commands))}")
        lines += [f"complete -c {program} -n 'test (count (commandline -opc)) -eq 2; and contains -- {first} "
                  f"(commandline -opc)' -f -a {command.second} -d {quoted(command.does)}"
                  for command in commands if is_group(first, commands)]
    for name, shared in options_by_name(listing):
        for option, commands in shared:
            value = (" -r -F" if option.paths else " -x") if option.value else ""
            value += f" -a '{' '.join(option.words)}'" if option.words else ""
            having = '" "'.join(commands)
            lines.append(f"complete -c {program} -n 'contains -- ({function_name(listing)}_command) \"{having}\"' "
                         f"-l {name}{value} -d {quoted(option.help)}")
    return Script("""# Completion of @program in fish, made by: @program --completion fish
function @{function}_command
    set -l words (commandline -opc) '' ''
    switch $words[2]
        case @groups
            echo "$words[2] $words[3]"
        case @others
            echo $words[2]
        case '*'
            echo @default
    end
end
@lines
""").substitute(program=program, function=function_name(listing), groups=words_of_groups(listing, " "),
                others=words_of_others(listing, " "), default=listing.commands[0].words, lines="\n".join(lines))
