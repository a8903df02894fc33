"""Reads a run's folder: metrics.jsonl (its format: src/app/metrics_log.hpp), config.toml, exit.json, and
from its lock whether the run is under way. Files and fields may be missing, and lines may be damaged."""

from __future__ import annotations

import bisect
import dataclasses
import datetime
import fcntl
import functools
import json
import os
import pathlib
import struct

from tutti import files
from tutti.metrics import MOST_STEPS, is_record
from tutti.program import BAD_INPUT, CANNOT_READ, Failure, describe

FLOCK = "hhqqi4x"  # struct flock of Linux with 64-bit offsets: type, whence, start, length, process
MOST_FIGURE = 1e30  # limit of the values that are accepted


@dataclasses.dataclass(frozen=True)
class Resume:
    step: int  # done already
    record: dict


@dataclasses.dataclass
class Run:
    folder: pathlib.Path
    changed: datetime.datetime  # the last record
    starts: list[dict] = dataclasses.field(default_factory=list)  # run records: the start and every resume
    resumes: list[Resume] = dataclasses.field(default_factory=list)
    epochs: list[dict] = dataclasses.field(default_factory=list)  # these four have the last record of every step
    stretches: list[dict] = dataclasses.field(default_factory=list)  # means over --log-every steps
    times: list[dict] = dataclasses.field(default_factory=list)
    checkpoints: list[dict] = dataclasses.field(default_factory=list)
    incidents: list[dict] = dataclasses.field(default_factory=list)  # divergences, wrong results and skipped steps
    damaged: list[int] = dataclasses.field(default_factory=list)  # lines of metrics.jsonl that are not records
    is_cut_off: bool = False  # the last line is half written
    options_text: str = ""  # config.toml
    options: dict = dataclasses.field(default_factory=dict)
    end: dict | None = None  # exit.json, of the launch that wrote the last record
    failed_start: dict | None = None  # exit.json, of a later start that failed, and did not change this finished run
    is_done: bool = False  # the last record is that of the planned end
    under_way: bool = False
    chosen_step: int | None = None  # of the checkpoint that the user chose; none: the newest

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def last_step(self) -> int:
        return max((records[-1]["step"] for records in (self.epochs, self.stretches, self.times, self.checkpoints)
                    if records), default=0)

    @property
    def shown(self) -> dict:
        """The record of the epoch that ended at the chosen step (empty if none did), or of the last one."""
        if self.chosen_step is None:
            return self.epochs[-1]
        return next((one for one in self.epochs if one["step"] == self.chosen_step), {})

    def epochs_at(self, step: int) -> float:
        """Returns the epochs done after this many steps, or the steps if no epoch has ended. An epoch that was cut
        short also ends at its number."""
        steps, numbers, longest = self._epoch_ends
        after = bisect.bisect_left(steps, step, 1)
        if after == len(steps):
            return numbers[-1] + (step - steps[-1]) / longest[-1]
        between = max(1, numbers[after] - numbers[after - 1])
        return numbers[after] - min((steps[after] - step) / longest[after], between)

    @functools.cached_property
    def _epoch_ends(self) -> tuple[list[int], list[int], list[float]]:
        """Returns steps and numbers of the epochs after a first 0, and the length of the longest epoch up to each."""
        steps, numbers, longest = [0], [0], [1.0]
        for record in self.epochs:
            longest.append(max(longest[-1], (record["step"] - steps[-1]) / max(1, record["epoch"] - numbers[-1])))
            steps.append(record["step"])
            numbers.append(record["epoch"])
        return steps, numbers, longest

    def state(self) -> str:
        if self.under_way:
            return f"under way, {self.last_step} steps done"
        if self.end:
            return f"ended with status {self.end.get('status')} after {self.last_step} steps: {self.end.get('reason')}"
        if self.ended_early:
            return f"ended in epoch {self.epochs[-1]['epoch'] + 1} of {self.options['epochs']} without giving a reason"
        return f"ended after {self.last_step} steps"

    @property
    def ended_early(self) -> bool:
        return bool(self.epochs) and not self.options.get("steps") and \
            self.epochs[-1]["epoch"] < whole(self.options, "epochs")


def read(folder: str | pathlib.Path) -> Run:
    path = pathlib.Path(folder) / "metrics.jsonl"
    try:
        data, changed = files.read(path, files.MOST_OF_RECORDS)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Failure(BAD_INPUT, f"'{folder}' holds no metrics.jsonl: give the folder that a training had as --out") \
            from error
    except OSError as error:
        raise Failure(CANNOT_READ, f"cannot read '{path}': {describe(error)}") from error
    run = Run(pathlib.Path(folder), datetime.datetime.fromtimestamp(changed))
    _take_lines(run, data)
    if not run.starts and not run.last_step and not run.incidents:
        raise Failure(BAD_INPUT, f"'{path}' holds no record yet: wait for the run to begin, or give another folder")
    run.options_text = _text_of(path.with_name("config.toml"))
    run.options = _options_of(run.options_text)
    end = _parsed(_text_of(path.with_name("exit.json")))
    end = end if isinstance(end, dict) else None
    run.end, run.failed_start = (None, end) if run.is_done else (end, None)
    run.under_way = _is_locked(path.with_name("lock"))
    return run


def whole(record: dict, name: str) -> int:
    """Returns a count from a record, or 0."""
    value = record.get(name)
    return min(max(value, 0), MOST_STEPS) if isinstance(value, int) and not isinstance(value, bool) else 0


def figure(record: dict, name: str) -> float | None:
    value = record.get(name)
    is_figure = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= MOST_FIGURE
    return float(value) if is_figure else None


def words(value: object) -> str:
    """Returns a value from a record as people read it."""
    if isinstance(value, str):
        return value
    return "-" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text_of(path: pathlib.Path) -> str:
    try:
        return files.read(path)[0].decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise Failure(CANNOT_READ, f"cannot read '{path}': {describe(error)}") from error


def _parsed(text: str | bytes) -> object:
    """Returns None if the text is not JSON."""
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        return json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError):
        return None


def _take_lines(run: Run, data: bytes) -> None:
    records = []
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        record = _parsed(line) if line else None
        if is_record(record):
            records.append(record)
        elif line:
            run.damaged.append(number)
    run.is_done = bool(records) and records[-1]["event"] == "end" and records[-1].get("status") == "done"
    run.is_cut_off = bool(lines[-1]) and run.damaged[-1:] == [len(lines)]
    latest: dict[str, dict[int, dict]] = {"epoch": {}, "step": {}, "time": {}, "checkpoint": {}}
    incidents: dict[str, dict] = {}  # a resume repeats steps and their incidents
    for place, record in enumerate(records):
        event = record["event"]
        if event == "run":
            if run.starts:
                step = whole(record, "step") if "step" in record else _step_before(records, place)
                run.resumes.append(Resume(step, record))
            run.starts.append(record)
        elif event in latest:
            if event in ("epoch", "time"):
                record["epoch"] = whole(record, "epoch")
            latest[event][record["step"]] = record
        elif event in ("audit", "divergence", "skipped"):
            for name in ("unix_time", "hash"):
                record.pop(name, None)
            incidents[json.dumps(record, sort_keys=True)] = record
    run.epochs, run.stretches, run.times, run.checkpoints = ([one[step] for step in sorted(one)]
                                                             for one in latest.values())
    # That of an epoch in which --steps ended the run is replaced by that of its end, which counts all its steps.
    run.epochs = list({record["epoch"]: record for record in run.epochs}.values())
    run.incidents = sorted(incidents.values(), key=lambda record: record["step"])


def _step_before(records: list[dict], place: int) -> int:
    """A resume by an earlier version began at the newest good checkpoint that precedes the first step after it."""
    after = next((record["step"] for record in records[place:] if record["event"] not in ("run", "checkpoint")), None)
    return max((record["step"] for record in records[:place] if record["event"] == "checkpoint" and
                "failure" not in record and (after is None or record["step"] < after)), default=0)


def _options_of(text: str) -> dict:
    """The trainer writes them as name = value, one per line."""
    options = {}
    for line in text.splitlines():
        name, is_option, value = line.partition(" = ")
        if is_option:
            options[name] = _parsed(value)
    return options


def _is_locked(path: pathlib.Path) -> bool:
    """Whether the lock is held. Does not take it, so that a run can start. False if the file system cannot tell."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as lock:
            answer = fcntl.fcntl(lock, fcntl.F_OFD_GETLK, struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return False
    return struct.unpack(FLOCK, answer)[0] != fcntl.F_UNLCK
