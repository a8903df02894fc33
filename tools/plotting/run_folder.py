"""What a run folder tells: metrics.jsonl (its format is in include/tutti/train/metrics_log.hpp), config.toml, exit.json,
and by its lock whether the run is still under way."""

import dataclasses
import datetime
import errno
import fcntl
import json
import os
import pathlib
import struct
import tomllib

from plotting.errors import PlotError

FLOCK = "hhqqi4x"  # struct flock of Linux with 64-bit offsets: type, whence, start, length, process


@dataclasses.dataclass(frozen=True)
class Resume:
    step: int
    record: dict


@dataclasses.dataclass
class Run:
    folder: pathlib.Path
    date: str  # of the last record
    starts: list[dict] = dataclasses.field(default_factory=list)  # run records: the start and every resume
    resumes: list[Resume] = dataclasses.field(default_factory=list)
    epochs: list[dict] = dataclasses.field(default_factory=list)
    stretches: list[dict] = dataclasses.field(default_factory=list)  # means over --log-every steps
    checkpoints: list[dict] = dataclasses.field(default_factory=list)
    options: dict = dataclasses.field(default_factory=dict)  # config.toml
    end: dict | None = None  # exit.json
    under_way: bool = False

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def last_step(self) -> int:
        return max((record["step"] for record in self.epochs + self.stretches + self.checkpoints), default=0)

    def epochs_at(self, step: int) -> float:
        """Epochs done after so many steps; whole numbers at the epochs' own records, but for a last one cut short."""
        before = {"step": 0, "epoch": 0}
        longest = 1.0
        for record in self.epochs:
            longest = max(longest, (record["step"] - before["step"]) / max(1, record["epoch"] - before["epoch"]))
            if step <= record["step"]:
                return record["epoch"] - min((record["step"] - step) / longest, record["epoch"] - before["epoch"])
            before = record
        return before["epoch"] + (step - before["step"]) / longest

    def state(self) -> str:
        if self.under_way:
            return f"under way, {self.last_step} steps done"
        if self.end:
            return f"ended with status {self.end.get('status')} after {self.last_step} steps: {self.end.get('reason')}"
        planned = self.options.get("epochs", 0)
        if self.epochs and planned and self.epochs[-1]["epoch"] < planned and not self.options.get("steps"):
            return f"ended in epoch {self.epochs[-1]['epoch'] + 1} of {planned}, leaving no reason"
        return f"ended after {self.last_step} steps"


def read(folder: pathlib.Path) -> Run:
    path = folder / "metrics.jsonl"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        changed = path.stat().st_mtime
    except OSError as error:
        raise PlotError(f"{path}: {error.strerror}; give the folder that a training had as --out") from error
    run = Run(folder, datetime.datetime.fromtimestamp(changed).strftime("%Y-%m-%d"))
    take_records(run, parse_lines(path, text))
    if not run.starts and not run.last_step:
        raise PlotError(f"{path} holds no record yet: wait for the run to begin, or --follow it")
    run.options = tomllib.loads(text_of(folder / "config.toml"))
    run.end = json.loads(text_of(folder / "exit.json") or "null")
    run.under_way = is_locked(folder / "lock")
    return run


def text_of(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def parse_lines(path: pathlib.Path, text: str) -> list[dict]:
    """The last line may be half written; any other that is no record is a mistake."""
    records = []
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                records.append(json.loads(line))
                records[-1]["event"]
        except (ValueError, TypeError, KeyError) as error:
            if number == len(lines):
                records = [record for record in records if isinstance(record, dict)]
                break
            raise PlotError(f"{path}, line {number} is no record of a run: {line[:60]!r}; is this a metrics.jsonl of "
                            "the trainer, and whole?") from error
    return records


def take_records(run: Run, records: list[dict]) -> None:
    """Keeps the last record of each event and step. A resume began at the newest good checkpoint before it that lies
    before what comes after it."""
    latest: dict[str, dict[int, dict]] = {"epoch": {}, "step": {}, "checkpoint": {}}
    for place, record in enumerate(records):
        if record["event"] == "run":
            if run.starts:
                after = next((later["step"] for later in records[place:] if "step" in later), None)
                steps = [earlier["step"] for earlier in records[:place]
                         if earlier["event"] == "checkpoint" and "failure" not in earlier]
                run.resumes.append(Resume(max((one for one in steps if after is None or one < after), default=0), record))
            run.starts.append(record)
        elif record["event"] in latest:
            latest[record["event"]][record["step"]] = record
    run.epochs, run.stretches, run.checkpoints = ([one[step] for step in sorted(one)] for one in latest.values())


def is_locked(path: pathlib.Path) -> bool:
    """Asks without taking it, so that no start is ever in the way."""
    try:
        with path.open("rb") as lock:
            answer = fcntl.fcntl(lock, fcntl.F_OFD_GETLK, struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOLCK, errno.ENOTSUP):  # a file system without locks
            return False
        raise PlotError(f"{path}: {error.strerror}") from error
    return struct.unpack(FLOCK, answer)[0] != fcntl.F_UNLCK
