"""All commands of the trainer with their options: the built-in ones as the trainer lists them, and the companions."""

import dataclasses
import json
import subprocess

from tutti import launch, program

SECONDS_TO_ANSWER = 20


@dataclasses.dataclass(frozen=True)
class Option:
    name: str  # without the dashes
    help: str = ""
    group: str = ""
    value: str = ""  # TEXT, INT, FLOAT, LIST or another word; empty: a flag
    default: str = ""
    words: tuple = ()  # values that can be named
    paths: bool = False  # files and folders are values, too
    required: bool = False
    list: bool = False  # of an operand: any number of them
    use: str = ""  # what a resume or replay does with it (src/app/option_table.hpp)


@dataclasses.dataclass(frozen=True)
class Command:
    words: str  # "train", "bench step"
    does: str
    operands: tuple = ()
    options: tuple = ()

    @property
    def first(self):
        return self.words.split(" ")[0]

    @property
    def second(self):
        return self.words.split(" ")[-1]


@dataclasses.dataclass(frozen=True)
class Listing:
    program: str
    version: str
    statuses: str
    commands: tuple  # the default one first

    def groups(self):
        """Commands by their first words: one of a single word, or several of two."""
        groups = {}
        for command in self.commands:
            groups.setdefault(command.first, []).append(command)
        return groups


def is_group(first, commands):
    return commands[0].words != first


def listed_by_trainer():
    answer = launch.ask("--list-options")
    if answer.returncode != program.DONE:
        raise program.Failure(program.INTERNAL, f"{program.trainer()} does not list its options: "
                                                f"{answer.stderr.decode(errors='replace').strip()}")
    return json.loads(answer.stdout)


def read():
    """The trainer's listing, with the options of the companions that it names."""
    listed = listed_by_trainer()
    commands = {}
    for each in listed["commands"]:
        commands.setdefault(each["words"], each)  # a built-in command goes before a companion of its words
    listing = Listing(program.name(), listed["version"], listed["statuses"],
                      tuple(command_of(each) for each in commands.values()))
    in_groups = (command for group in listing.groups().values() for command in group)
    return dataclasses.replace(listing, commands=tuple(in_groups))


def command_of(listed):
    if "companion" in listed:
        listed = listed | options_of(listed["companion"])
    operands, options = (tuple(Option(**option | {"words": tuple(option["words"])}) for option in listed[kind])
                         for kind in ("operands", "options"))
    return Command(listed["words"], listed["does"], operands, options)


def options_of(companion):
    """The options as tutti.program.Parser lists them; none if the companion has another parser."""
    listed = subprocess.run([companion, "--list-options"], stdin=subprocess.DEVNULL, capture_output=True, check=False,
                            timeout=SECONDS_TO_ANSWER)
    try:
        return {kind: json.loads(listed.stdout)[kind] for kind in ("operands", "options")}
    except (ValueError, KeyError, TypeError):
        return {"operands": [], "options": []}
