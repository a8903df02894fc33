"""The parts that compare our speed with PyTorch's: same workload, same batch, alternating, on the same GPU.

PyTorch's processes run for a whole workload, so that they compile once, and wait while another one computes. Ours is
restarted for each round. All have their data on the device and are timed over many steps after a warm-up.
"""

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import threading

from gpu_day.session import PEERS, PartFailed, PartResult, Session, end_group
from peers.tables import number

ROUNDS = 5


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str  # prefix of its figures
    model: str
    shape: str
    batch: int
    steps: int  # timed in a round
    samples: int  # of our synthetic set
    graph: bool = False  # also measure PyTorch's step as a CUDA graph, which helps most where launches are expensive

    def __str__(self) -> str:
        return f"{self.model}, batch {self.batch} of {self.shape}, bf16"


WORKLOADS = {
    "speed-lenet": [Workload("lenet_64", "lenet", "1x28x28", 64, 4000, 60000, True),
                    Workload("lenet_512", "lenet", "1x28x28", 512, 1500, 60000, True)],
    "speed-resnet18-28": [Workload("resnet18_28_256", "resnet18", "1x28x28", 256, 150, 60000, True),
                          Workload("resnet18_28_512", "resnet18", "1x28x28", 512, 100, 60000),
                          Workload("resnet18_28_1024", "resnet18", "1x28x28", 1024, 60, 60000)],
    "speed-resnet18-32": [Workload("resnet18_32_512", "resnet18", "3x32x32", 512, 100, 50000),
                          Workload("resnet18_32_1024", "resnet18", "3x32x32", 1024, 60, 50000)],
    "speed-resnet50": [Workload("resnet50_256", "resnet50", "3x224x224", 256, 25, 4096)],
}
PEER_FLAGS = {"eager": [], "compiled": ["--compile"], "graph": ["--compile", "--graph"]}


class Peer:
    """A process of pytorch_step.py that runs a round per request."""

    def __init__(self, session: Session, side: str, workload: Workload):
        self.session = session
        words = [*session.tool("python"), PEERS / "pytorch_step.py", "--on-demand", "--device", session.device,
                 *PEER_FLAGS[side], "--model", workload.model, "--shape", workload.shape, "--batch", workload.batch,
                 "--precision", "bf16", "--timed-steps", workload.steps, "--warmup-steps", workload.steps // 10 + 1]
        self.process = session.start(words, dict(os.environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE)
        self.errors: list[str] = []
        self.reader = threading.Thread(target=lambda: self.errors.extend(self.process.stderr), daemon=True)
        self.reader.start()
        self.watch = threading.Timer(max(1.0, session.seconds_left()), end_group, [self.process])
        self.watch.daemon = True
        self.watch.start()
        try:
            self.start = self.answer()
        except PartFailed:
            self.close()
            raise

    def answer(self) -> dict:
        for line in self.process.stdout:
            self.session.note(line)
            if line.startswith("{"):
                return json.loads(line)
        self.reader.join(timeout=5)
        self.session.note("".join(self.errors))
        raise PartFailed("PyTorch ended early: " + " / ".join(line.strip() for line in self.errors[-2:])[-300:])

    def run_round(self) -> dict:
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except OSError:
            pass  # answer() reports the reason
        return self.answer()

    def close(self) -> None:
        self.watch.cancel()
        end_group(self.process)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self.reader.join(timeout=5)
        self.process.stderr.close()


class Ours:
    """The trainer's bench of the same steps."""

    def __init__(self, session: Session, workload: Workload):
        self.session = session
        self.figures = session.folder / "step.json"
        samples = session.full(workload.samples, 2 * workload.batch)
        self.words = session.trainer(
            "bench", "step", *session.processor_words(), "--model", workload.model, "--precision", "bf16", "--data",
            f"synthetic:{samples}x{workload.shape}:10", "--batch-size", workload.batch, "--lr", 0.01, "--momentum", 0.9,
            "--warmup-steps", workload.steps // 10 + 1, "--timed-steps", workload.steps,
            "--json", self.figures)
        self.run_round()  # chooses the plans, which later rounds find in the cache

    def run_round(self) -> dict:
        self.session.run(self.words)
        return json.loads(self.figures.read_text(encoding="utf-8"))

    def close(self) -> None:
        self.figures.unlink(missing_ok=True)


def open_sides(session: Session, workload: Workload, sides: dict[str, Ours | Peer], problems: list[str]) -> None:
    """Opens one side after the other: cuDNN's choice by timing needs the GPU for itself."""
    for name in ["tutti", "eager", "compiled"] + (["graph"] if workload.graph and not session.rehearses else []):
        try:
            sides[name] = Ours(session, workload) if name == "tutti" else Peer(session, name, workload)
        except PartFailed as error:
            problems.append(f"{workload.name}, {name}: {error}")


def run_rounds(sides: dict[str, Ours | Peer], rounds: int, problems: list[str]) -> dict[str, list[float]]:
    """Images/s of each side by round, in a rotating order. A side that fails is skipped from then on."""
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        names = list(sides)
        first = turn % max(1, len(names))
        for name in names[first:] + names[:first]:
            try:
                figures[name].append(sides[name].run_round()["images_per_second"])
            except PartFailed as error:
                problems.append(f"{name}: {error}")
                sides.pop(name).close()
    return {name: values for name, values in figures.items() if len(values) == rounds}


def ratio_to(figures: dict[str, list[float]], side: str) -> float | None:
    """The median over the rounds of the ratio of ours to `side`."""
    if "tutti" not in figures or side not in figures:
        return None
    return statistics.median(ours / theirs for ours, theirs in zip(figures["tutti"], figures[side]))


def rehearsed(workload: Workload) -> Workload:
    return dataclasses.replace(workload, batch=4, steps=2, shape=f"{workload.shape.partition('x')[0]}x16x16")


def compare(session: Session, result: PartResult, workload: Workload, problems: list[str]) -> None:
    workload = rehearsed(workload) if session.rehearses else workload
    sides: dict[str, Ours | Peer] = {}
    try:
        open_sides(session, workload, sides, problems)
        figures = run_rounds(dict(sides), session.full(ROUNDS, 2), problems)
    finally:
        for side in sides.values():
            side.close()
    rows = []
    for name, values in figures.items():
        ratio = ratio_to(figures, name)
        median = statistics.median(values)
        rows.append([name, number(median), number(min(values)), number(max(values)),
                     f"{workload.batch / median * 1e3:.3f}", "-" if ratio is None else f"{ratio:.3f}"])
        result.figure(f"{workload.name}.{name}", median)
        if ratio is not None and name != "tutti":
            result.figure(f"{workload.name}.ratio_{name}", ratio)
    result.table(f"{workload}: {session.full(ROUNDS, 2)} rounds of {workload.steps} steps",
                 ["", "images/s", "least", "most", "step ms", "tutti / this"], rows)


def speed(session: Session, result: PartResult, name: str) -> None:
    problems: list[str] = []
    for workload in session.full(WORKLOADS[name], WORKLOADS[name][:1]):
        compare(session, result, workload, problems)
    if problems:
        raise PartFailed("; ".join(problems))
