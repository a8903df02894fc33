"""How a companion starts and ends: its exit status, and one line on stderr for what went wrong, as the trainer does."""

import argparse
import os
import pathlib
import signal
import sys

if sys.version_info < (3, 9):
    sys.stderr.write("trainer: this command needs Python 3.9 or newer, and python3 is %s\n" % sys.version.split()[0])
    raise SystemExit(64)

DONE = 0
NO = 1  # the answer to what was asked
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
    """How the user called that program: "./trainer"; "tutti" where it is installed."""
    return os.environ.get("TUTTI_CALL", trainer())


def name():
    return pathlib.PurePath(call()).name


class Parser(argparse.ArgumentParser):
    """Options of the command `words` ("data fetch"); a mistake in them is a Failure with status 64."""

    def __init__(self, words, description):
        super().__init__(prog=f"{name()} {words}", description=description, allow_abbrev=False)

    def error(self, message):
        raise Failure(USAGE, f"{message}; see {self.prog} --help")


def describe(error):
    """What an OSError says, without its number."""
    return error.strerror or str(error)


def run(main):
    """Calls main(words) and ends the process with the status that it returns."""
    try:
        status = main(sys.argv[1:]) or DONE
    except Failure as failure:
        status = _report(failure)
    except KeyboardInterrupt:
        status = -signal.SIGINT
    except BrokenPipeError:
        status = -signal.SIGPIPE
    sys.exit(_close_stdout(status))


def _report(failure):
    print(f"{name()}: {failure}", file=sys.stderr)
    return failure.status


def _close_stdout(status):
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python flushes at its end
        if isinstance(error, BrokenPipeError):
            status = -signal.SIGPIPE
        elif status == DONE:
            status = _report(Failure(CANNOT_SAVE, f"cannot write to stdout: {describe(error)}; what was printed is "
                                                  "lost: give it a file, a pipe or a terminal that takes it"))
    if status < 0:  # ended by a signal, as the shell is to see
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status
