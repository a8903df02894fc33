"""One call of `tools/gpu-day run`: it starts, logs and stops processes in time, and saves results."""

import argparse
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from typing import TextIO

from gpu_day import bundle, machine
from gpu_day.background import Background
from peers.tables import text_table

PEERS = pathlib.Path(__file__).resolve().parents[1] / "peers"
STAND_INS = pathlib.Path(__file__).with_name("stand_ins.py")
LOGGED_CHARACTERS = 400_000  # of one program's output


class PartFailed(Exception):
    """A part could not give (all of) its figures."""


class Results:
    """The results of each part by name, in one file, which is rewritten after every figure."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.parts: dict[str, dict] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def save(self) -> None:
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.parts, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self.path)


class PartResult:
    """Figures for the targets, and tables for people. Saved at once, so that an interrupted part keeps its results."""

    def __init__(self, results: Results, name: str, facts: dict, log: TextIO):
        self.log = log
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.record = {"when": now, **facts, "outcome": "was stopped", "figures": {}, "tables": []}
        self.results = results
        self.lines: list[str] = []
        results.parts[name] = self.record
        results.save()

    def figure(self, name: str, value: float | str) -> None:
        if not isinstance(value, str) and not 0 <= value < float("inf"):
            raise PartFailed(f"{name} is {value}")
        self.record["figures"][name] = value
        self.results.save()

    def table(self, title: str, header: list[str], rows: list[list[str]]) -> None:
        self.record["tables"].append({"title": title, "header": header, "rows": rows})
        self.results.save()
        self.log.write(f"\n{title}\n{text_table(header, rows)}\n")

    def line(self, text: str) -> None:
        """For the summary that the call prints at its end."""
        self.lines.append(text)

    def end(self, outcome: str, seconds: float) -> None:
        self.record |= {"outcome": outcome, "seconds": round(seconds, 1)}
        self.results.save()


def reason_in(output: str) -> str:
    """What the trainer says, if anything, else the last lines: mpirun adds many of its own."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return " / ".join(([line for line in lines if line.startswith(("trainer:", "[rank"))] or lines)[-3:])[-400:]


class Session:
    def __init__(self, options: argparse.Namespace, root: pathlib.Path):
        self.root = root
        self.out = options.out.resolve()
        self.bundle = bundle.facts_of(root)
        self.rehearses = options.rehearse
        self.limit = options.limit or (600 if options.rehearse else 75)
        self.end = time.monotonic() + (options.seconds or 1e9)
        self.deadline = min(self.end, time.monotonic() + self.limit)
        self.data = options.data.resolve() if options.data else None
        self.environment, warnings = machine.environment(root, self.bundle["needs"]["cuda"])
        self.warnings = [] if options.rehearse else warnings
        self.gpu = machine.gpu()
        self.python = os.environ.get("TUTTI_PYTHON") or (None if options.rehearse else machine.python_with_torch())
        if not options.rehearse:
            machine.bring_up_loopback()
        self.log = (options.out / "gpu-day.log").open("a", encoding="utf-8")
        self._folder = tempfile.TemporaryDirectory(prefix="gpu-day-")
        self.folder = pathlib.Path(self._folder.name)
        self.device = "cpu" if options.rehearse else "cuda"  # of PyTorch
        # Choices by timing are made once, for all parts.
        self.processor = {"device": "cuda", "plan-cache": self.out / "plans.txt"}
        self.background = Background(self.out / "background.log")

    def __enter__(self) -> "Session":
        if not self.gpu and not self.rehearses:
            self.warnings.append("nvidia-smi names no GPU: what runs here counts for nothing")
        for line in self.warnings:
            print(line, flush=True)
        return self

    def __exit__(self, *_) -> None:
        self.background.close()
        self.log.close()
        self._folder.cleanup()

    def facts(self) -> dict:
        """A run without a GPU counts as a rehearsal."""
        return {"gpu": self.gpu.get("gpu", "none"), "driver": self.gpu.get("driver", "none"),
                "commit": self.bundle["commit"], "rehearsal": self.rehearses or not self.gpu}

    def start_part(self) -> None:
        self.deadline = min(self.end, time.monotonic() + self.limit)

    def seconds_of_call_left(self) -> float:
        return self.end - time.monotonic()

    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def full(self, real, rehearsed):
        """Returns the first value on a GPU day, the second one in a rehearsal."""
        return rehearsed if self.rehearses else real

    def note(self, text: str) -> None:
        if len(text) > LOGGED_CHARACTERS:
            text = f"{text[:LOGGED_CHARACTERS // 2]}\n[...]\n{text[-LOGGED_CHARACTERS // 2:]}"
        self.log.write(text.rstrip("\n") + "\n")
        self.log.flush()

    def start(self, command: list, environment: dict[str, str] | None = None, **pipes) -> subprocess.Popen:
        """Starts a process in its own process group, so that all of it can be ended."""
        self.note(f"\n$ {' '.join(map(str, command))}")
        try:
            return subprocess.Popen([str(word) for word in command], env=environment or self.environment, text=True,
                                    errors="replace", process_group=0, **pipes)
        except OSError as error:
            raise PartFailed(f"{command[0]} cannot be started: {error.strerror}") from error

    def run(self, command: list, environment: dict[str, str] | None = None, seconds: float = 1e9) -> str:
        """Returns the output of the command. Fails if its status is not 0, or if it does not end in time."""
        status, output = self.status_of(command, environment, seconds)
        if status != 0:
            raise PartFailed(f"{pathlib.Path(str(command[0])).name} {' '.join(map(str, command[1:4]))} ... ended with "
                             f"{status}: {reason_in(output)}")
        return output

    def status_of(self, command: list, environment: dict[str, str] | None = None,
                  seconds: float = 1e9) -> tuple[int | str, str]:
        """Returns the status of the command and its output; "time" if it was stopped at its limit or the part's."""
        process = self.start(command, environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
        try:
            output, _ = process.communicate(timeout=max(1.0, min(seconds, self.seconds_left())))
            status: int | str = process.returncode
        except subprocess.TimeoutExpired:
            end_group(process)
            status = "time"
            try:
                output, _ = process.communicate(timeout=10)
            except subprocess.TimeoutExpired:  # a child process is still running and has the pipe open
                output = ""
        finally:
            end_group(process)
        self.note(output)
        return status, output

    def tool(self, name: str) -> list:
        """The start of a command line: a program of CUDA's toolkit, one that needs cuDNN, or "python" with PyTorch."""
        if name == "python" and self.python:
            return [self.python]
        if name == "python" and not self.rehearses:
            raise PartFailed("no Python with PyTorch was found: name one by TUTTI_PYTHON")
        if self.rehearses:
            return [sys.executable, STAND_INS, name]
        if (path := self.root / "bin" / name).is_file():
            return [path]
        found = machine.find_tool(name)
        if found is None:
            raise PartFailed(f"{name} was not found: install CUDA's toolkit, or put it on the PATH")
        return [found]

    @staticmethod
    def large_libraries() -> list[str]:
        """CUDA's, which take seconds to read from a cold disk."""
        files = [path for folder in machine.library_folders() for path in pathlib.Path(folder).glob("*.so*")]
        names = ("libcudnn", "libnccl", "libcublas", "libcudart", "libnvrtc")
        return [str(path) for path in files if path.name.startswith(names)]

    def trainer(self, *words: object, ranks: int = 1) -> list:
        launcher = ["mpirun", "-np", ranks] if ranks > 1 else []
        return [*launcher, self.root / "bin/trainer", *words]

    def processor_words(self) -> list:
        return [word for name, value in self.processor.items() for word in (f"--{name}", value)]

    def fashion_mnist(self) -> str:
        if self.rehearses:
            return "glyphs"
        folder = self.data / "fashion-mnist" if self.data else None
        if folder is None or not folder.is_dir():
            raise PartFailed("needs --data, a folder with fashion-mnist/ in it")
        return str(folder)


def end_group(process: subprocess.Popen) -> None:
    """Ends stopped processes as well. Programs in other groups end with their launcher."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGCONT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        if number == signal.SIGCONT:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                continue
