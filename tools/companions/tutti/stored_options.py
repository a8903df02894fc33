"""The options that a run has stored, for a replay: only those that determine results. A run may come from anyone, and
other options name files that the trainer writes."""

from __future__ import annotations

import json
import re

from tutti.program import BAD_INPUT, Failure

# Options that determine results, or which of them are recorded. A replay takes them from the run.
TAKEN = frozenset(
    "data test-data validation-ratio validation-split skip-bad-images resident-mib exif image-size augment normalize "
    "last-batch shuffle model init-from new-head init epochs batch-norm batch-size label-smoothing class-weights lr "
    "optimizer momentum nesterov weight-decay adam-beta1 adam-beta2 adam-epsilon no-decay lr-factors decay-factors "
    "freeze ema lookahead clip-norm schedule schedule-epochs lr-period lr-decay min-lr warmup-epochs warmup-lr seed "
    "parts threads precision tiled-convolutions exchange shard-optimizer wire bucket-mib in-flight search-plans "
    "record-steps test-every views log-every digest-every stall-timeout verify-replicas on-nonfinite "
    "allow-mixed-processors".split())
# Options that a replay chooses anew or leaves alone. All that name files to write are among them.
CHOSEN_ANEW = frozenset(
    "steps out device share-device comm part-map plan-cache checkpoint-every keep-checkpoints keep-best "
    "on-save-failure time-limit stop-at-accuracy patience sample-log trace progress quiet watch-interface verify-data "
    "audit-every on-divergence".split())
# Those among them that a resume would take from the checkpoint.
REPLACED = 'keep-best = false\naudit-every = 0\nplan-cache = "auto"\nsample-log = ""\ntrace = ""\n'
MOVED = frozenset("tensorboard mlperf-log".split())  # earlier versions had them, for files they wrote

# As the trainer writes options: one a line, a text as in JSON.
LINE = re.compile(r'([a-z][a-z0-9-]*) = (true|false|"(?:[^"\\]|\\.)*"|[+-]?(?:[0-9][0-9.]*(?:e[+-]?[0-9]+)?|inf|nan))')


def for_replay(text: str, origin: str) -> str:
    """The lines of a configuration file with these options. Any that the trainer does not write so are refused."""
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
        if name not in TAKEN | CHOSEN_ANEW | MOVED:
            raise _refusal(origin, number, f"this version has no option '{name}': replay the run with the version that "
                                           "trained it")
    lines.setdefault("validation-split", 'validation-split = "random"\n')  # of versions without this option
    return "".join(line for name, line in lines.items() if name in TAKEN) + REPLACED


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
