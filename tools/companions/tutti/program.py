"""The start and end of a companion: its command line, its exit status, and one line on stderr for an error."""

import argparse
import difflib
import io
import json
import os
import pathlib
import signal
import sys
import traceback

if sys.version_info < (3, 9):
    sys.stderr.write("trainer: this command needs Python 3.9 or newer, and python3 is %s\n" % sys.version.split()[0])
    raise SystemExit(64)

DONE = 0
NO = 1  # negative result
USAGE = 64
BAD_INPUT = 65
NO_CHECKPOINT = 66
INTERNAL = 70
CANNOT_SAVE = 73
CANNOT_READ = 74


class Failure(Exception):
    """Ends the program with this status and this line on stderr."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def trainer():
    """The path of the program that a companion belongs to."""
    return os.environ.get("TUTTI_TRAINER", "trainer")


def call():
    """How the user called that program: "./trainer", or "tutti" if it is installed."""
    return os.environ.get("TUTTI_CALL", trainer())


def name():
    return pathlib.PurePath(call()).name


class Parser(argparse.ArgumentParser):
    """Parses the options of the command `words` ("data fetch"). An error in them is a Failure with status 64."""

    def __init__(self, words, description):
        super().__init__(prog=f"{name()} {words}", description=description, allow_abbrev=False, add_help=False)
        self.add_argument("-h", "--help", action="help", help="print this help and exit")
        # The trainer handles this option before it starts a companion.
        self.add_argument("--version", action="store_true", help="print the versions of program and libraries and exit")

    def parse_args(self, words):
        if words == ["--list-options"]:  # asked by tutti.listing
            print(json.dumps(self._listing()))
            raise SystemExit
        options, unknown = self.parse_known_args(words)
        if unknown and unknown[0].startswith("-"):
            written = unknown[0].split("=")[0]
            known = [flag for action in self._actions for flag in action.option_strings]
            nearest = difflib.get_close_matches(written, known, 1)
            meant = f"did you mean '{nearest[0]}'? See" if nearest else "see"
            raise Failure(USAGE, f"unknown option '{written}': {meant} {self.prog} --help")
        if unknown:
            raise Failure(USAGE, f"unexpected argument '{unknown[0]}': see {self.prog} --help")
        return options

    def _listing(self):
        operands, options = [], []
        for action in self._actions:
            value = "" if action.nargs == 0 else {int: "INT", float: "FLOAT"}.get(action.type, "TEXT")
            listed = {"name": (action.option_strings or [action.dest])[-1].lstrip("-"),
                      "help": self._get_formatter()._expand_help(action),  # with the default in it
                      "value": value, "words": list(action.choices or ()),
                      "paths": value == "TEXT" and not action.choices, "required": action.required,
                      "list": not action.option_strings and action.nargs in ("*", "+")}
            (options if action.option_strings else operands).append(listed)
        return {"operands": operands, "options": options}

    def error(self, message):
        raise Failure(USAGE, f"{message}; see {self.prog} --help")


def describe(error):
    """The text of an OSError, without its number."""
    return error.strerror or str(error)


def printable(text):
    """The text with control characters escaped."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def plural(count, noun):
    return f"{count} {noun}" if str(count) == "1" else f"{count} {noun}s"


def print_note(text):
    """Prints a line to stderr, which may be full or closed."""
    try:
        print(printable(text), file=sys.stderr, flush=True)
    except OSError:
        pass


class _Stdout(io.RawIOBase):
    """Printing fails only if the reader is gone. Other failures are reported when the program ends."""

    failure = None

    def fileno(self):
        return 1

    def writable(self):
        return True

    def isatty(self):
        return os.isatty(1)

    def write(self, data):
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(1, rest):]
        except BrokenPipeError:
            raise
        except OSError as error:
            self.failure = self.failure or error
        return len(data)


class _PrintedText(io.TextIOWrapper):
    """Text of files, such as names of models, must not control the terminal."""

    def write(self, text):
        return super().write(printable(text))


def run(main):
    """Calls main(words) and ends the process with the status that it returns."""
    stdout = _Stdout()
    sys.stdout = _PrintedText(io.BufferedWriter(stdout), encoding="utf-8", line_buffering=stdout.isatty())
    try:
        status = _status_of(main)
        sys.stdout.flush()
        if stdout.failure and status == DONE:
            status = _report(Failure(
                CANNOT_SAVE, f"cannot write to stdout: {describe(stdout.failure)}; the output is lost: redirect it to "
                             "a file, a pipe or a terminal that can be written"))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for the flush when Python exits
        _end_by(signal.SIGPIPE)
    sys.exit(status)


def _status_of(main):
    try:
        return main(sys.argv[1:]) or DONE
    except SystemExit as end:  # --help
        return end.code or DONE
    except Failure as failure:
        return _report(failure)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return _end_by(signal.SIGINT)
    except Exception as error:  # Python would end with 1, which is the status of a negative result
        where = traceback.extract_tb(error.__traceback__)[-1]
        return _report(Failure(INTERNAL, f"internal error: {type(error).__name__}: {error} "
                                         f"({pathlib.PurePath(where.filename).name}:{where.lineno}); please report it"))


def _report(failure):
    print_note(f"{name()}: {failure}")
    return failure.status


def _end_by(number):
    """Ends the process by the signal's default action, so that the shell sees the signal."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
