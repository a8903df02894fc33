"""The options that a run has stored, for a replay: only those that determine results. A run may come from anyone, and
other options name files that the trainer writes."""

from __future__ import annotations

import functools
import json
import re

from tutti import listing
from tutti.program import BAD_INPUT, Failure

# Uses (src/app/option_table.hpp) of the options that determine results, or which of them are recorded. A replay takes
# these from the run; all that name files to write have other uses.
TAKEN = frozenset({"fixed", "replayed", "data source"})
# Options that a resume would take from the checkpoint, and a replay chooses itself.
REPLACED = 'keep-best = false\naudit-every = 0\nplan-cache = "auto"\nsample-log = ""\ntrace = ""\n'
MOVED = frozenset("tensorboard mlperf-log".split())  # earlier versions had them, for files they wrote

# As the trainer writes options: one a line, a text as in JSON.
LINE = re.compile(r'([a-z][a-z0-9-]*) = (true|false|"(?:[^"\\]|\\.)*"|[+-]?(?:[0-9][0-9.]*(?:e[+-]?[0-9]+)?|inf|nan))')


@functools.lru_cache(maxsize=None)
def uses() -> dict:
    """The use of each option of a training."""
    return {option["name"]: option["use"] for option in listing.listed_by_trainer()["commands"][0]["options"]
            if option["use"] != "unstored"}


def for_replay(text: str, origin: str) -> str:
    """The lines of a configuration file with these options. Any that the trainer does not write so are refused."""
    use_of = uses()
    lines = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line:
            continue
        written = LINE.fullmatch(line)
        if not written or written[1] in lines:
            raise _refusal(origin, number, f"{line[:80]!r} is not an option as the trainer writes it, or a second time")
        name, value = written[1], written[2]
        if value.startswith('"'):
            value = _text(value, origin, number)
        lines[name] = f"{name} = {value}\n"
        if name not in use_of and name not in MOVED:
            raise _refusal(origin, number, f"this version has no option '{name}': replay the run with the version that "
                                           "trained it")
    lines.setdefault("validation-split", 'validation-split = "random"\n')  # of versions without this option
    if lines.get("exchange") == 'exchange = "exact"\n' and lines.get("wire") in (None, 'wire = "fp32"\n'):
        lines["wire"] = 'wire = "int64"\n'  # of versions that had no other integers
    return "".join(line for name, line in lines.items() if use_of.get(name) in TAKEN) + REPLACED


def _text(value: str, origin: str, number: int) -> str:
    """A text, written again."""
    try:
        written = json.dumps(json.loads(value), ensure_ascii=False).replace("\x7f", "\\u007F")
        written.encode()
        return written
    except ValueError as error:
        raise _refusal(origin, number, f"{value[:80]!r} is not a text as the trainer writes it") from error


def _refusal(origin: str, number: int, why: str) -> Failure:
    return Failure(BAD_INPUT, f"{origin}, line {number} of its options: {why}")
