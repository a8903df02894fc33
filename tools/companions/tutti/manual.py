"""The trainer's manual page, for man."""

import re

EXAMPLES = (
    ("mpirun -np 4", "", "trains a small network on digits that the program draws itself"),
    ("mpirun -np 4", " --parts 8 --out runs/a",
     "cuts every batch into 8 parts, for the same bits on 1 to 8 ranks, and saves checkpoints"),
    ("mpirun -np 3", " --resume --out runs/a", "resumes from the newest good one of them"),
    ("srun", " --config run.toml --device cuda", "under Slurm, with options from a file"))

FILES = (
    ("OUT/checkpoints/step-*.h5", "checkpoints, each with a manifest .json"),
    ("OUT/metrics.jsonl", "a JSON object for every epoch, and for whatever else is recorded"),
    ("OUT/config.toml", "the resolved options, as --config reads them"),
    ("OUT/exit.json", "written by the first rank that failed, since launchers hide exit statuses"))

ENVIRONMENT = (("TUTTI_DATA", "folder in which --data looks for names that are neither here nor in ./data"),)


def roff(text):
    """Escapes hyphens, so that they can be copied, and lines that would begin with a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", escaped, flags=re.MULTILINE)


def entry(what, text):
    return f".TP\n\\fB{roff(what)}\\fR\n{roff(text)}\n"


def option_text(option):
    value = f" \\fI{option.value}\\fR" if option.value else ""
    default = f" [{option.default}]" if option.default else ""
    return f".TP\n\\fB\\-\\-{roff(option.name)}\\fR{value}\n{roff(option.help + default)}\n"


def synopsis(program, command):
    text = f"\\fB{roff(program)} {roff(command.words)}\\fR"
    for operand in command.operands:
        name = f"\\fI{roff(operand.name.upper())}\\fR{'...' if operand.list else ''}"
        text += f" {name}" if operand.required else f" [{name}]"
    return text + (" [\\fIOPTION\\fR]..." if command.options else "")


def grouped_options(command):
    groups = {}
    for option in command.options:
        groups.setdefault(option.group, []).append(option)
    return "".join(f".SS {roff('Texts' if group == 'Options' else group)}\n" + "".join(map(option_text, options))
                   for group, options in groups.items())


def other_command(program, command, base):
    text = f".SS {roff(command.words)}\n{synopsis(program, command)}\n.PP\n"
    text += f"{roff(command.does[:1].upper() + command.does[1:])}.\n"
    text += "".join(f".TP\n\\fI{roff(operand.name.upper())}\\fR\n{roff(operand.help)}\n"
                    for operand in command.operands)
    known = {(option.name, option.help) for option in base.options}  # the same name may mean something else
    text += "".join(option_text(option) for option in command.options if (option.name, option.help) not in known)
    return text + shared_options(command, base)


def shared_options(command, base):
    """Names the options that it shares with the default command, or lists the exceptions."""
    own = {(option.name, option.help) for option in command.options}
    shared = [option for option in base.options if (option.name, option.help) in own]
    missing = [option for option in base.options if (option.name, option.help) not in own]
    if not shared:
        return ""
    is_most = len(missing) < len(shared)
    names = ", ".join(f"\\fB\\-\\-{roff(option.name)}\\fR" for option in (missing if is_most else shared))
    which = f"all options of {roff(base.words)} except" if is_most else f"of {roff(base.words)}"
    return f".PP\nAlso {which}: {names}.\n"


def page(listing):
    program, base = listing.program, listing.commands[0]
    description = ("One rank per GPU or CPU slot computes its part of every batch, gradients are all-reduced over the "
                   f"ranks, and the state is saved in HDF5 files. The command {base.words} may be left out. Every "
                   "option has a default, in brackets here.")
    statuses = listing.statuses.split(": ", 1)[-1]
    others = "".join(other_command(program, command, base) for command in listing.commands[1:])
    examples = "".join(entry(f"{launcher} {program}{options}", does) for launcher, options, does in EXAMPLES)
    return (f".TH \"{roff(program.upper())}\" 1 \"\" \"Tutti {roff(listing.version)}\" \"User Commands\"\n.nh\n.ad l\n"
            f".SH NAME\n{roff(program)} \\- trains image classifiers on MPI ranks\n"
            f".SH SYNOPSIS\n\\fBmpirun \\-np\\fR \\fIRANKS\\fR {synopsis(program, base)}\n"
            f".br\n\\fB{roff(program)} \\fICOMMAND\\fR [\\fIOPTION\\fR]...\n"
            f".SH DESCRIPTION\n{roff(description)}\n"
            f".SH OPTIONS\n{grouped_options(base)}"
            f".SH OTHER COMMANDS\n{others}"
            f".SH EXAMPLES\n{examples}"
            f".SH EXIT STATUS\n{roff(statuses)}\n"
            f".SH FILES\n{''.join(entry(*file) for file in FILES)}"
            f".SH ENVIRONMENT\n{''.join(entry(*variable) for variable in ENVIRONMENT)}"
            ".SH SEE ALSO\n\\fBmpirun\\fR(1), \\fBsrun\\fR(1), \\fBh5dump\\fR(1)\n")
