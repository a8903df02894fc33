"""The parts that compare our speed with PyTorch's: same workload, same batch, alternating, on the same GPU.

PyTorch runs in a process for each of its ways of computing a step, which starts once and waits while another side
computes. (In one process, the graph of a step failed after other ways had run, and then all others.) What it compiles
was compiled in the background, while tests ran. Ours is restarted for each round. All have their data on the device and
are timed over many steps after a warm-up.
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

ROUNDS = 3
WAYS = ("eager", "compiled", "graph")  # of pytorch_step.py


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str  # prefix of its figures
    model: str
    shape: str
    batch: int
    steps: int  # timed in a round
    samples: int  # of our synthetic set: whole batches, so that no plans for a short last one are searched
    ways: tuple[str, ...] = WAYS

    def __str__(self) -> str:
        return f"{self.model}, batch {self.batch} of {self.shape}, bf16"

    def with_ways(self, *ways: str) -> "Workload":
        return dataclasses.replace(self, name=f"{self.name}_{ways[0]}", ways=ways)


LENET_64 = Workload("lenet_64", "lenet", "1x28x28", 64, 2000, 61440)
LENET_512 = Workload("lenet_512", "lenet", "1x28x28", 512, 1000, 61440)
R18_256 = Workload("resnet18_28_256", "resnet18", "1x28x28", 256, 150, 61440)
R18_512 = Workload("resnet18_28_512", "resnet18", "1x28x28", 512, 100, 61440)
R18_1024 = Workload("resnet18_28_1024", "resnet18", "1x28x28", 1024, 60, 61440)
WORKLOADS = {
    "speed-resnet18-256": R18_256,
    "speed-resnet18-1024": R18_1024,
    "speed-lenet-64": LENET_64,
    "speed-resnet50": Workload("resnet50_256", "resnet50", "3x224x224", 256, 20, 4096, ("compiled", "graph")),
    "speed-resnet18-256-autotuned": R18_256.with_ways("autotuned"),
    "speed-resnet18-1024-autotuned": R18_1024.with_ways("autotuned"),
    "speed-lenet-512": LENET_512,
    "speed-resnet18-32": Workload("resnet18_32_512", "resnet18", "3x32x32", 512, 100, 51200, ("compiled", "graph")),
}
ALONE = [R18_256, R18_1024, LENET_64, R18_512, LENET_512]  # in part "steps"
SECONDS_TO_COMPILE = 45  # that a part waits for what is compiled in the background


def peer_words(session: Session, workload: Workload, *more: object) -> list:
    return [*session.tool("python"), PEERS / "pytorch_step.py", "--device", session.device, "--model", workload.model,
            "--shape", workload.shape, "--batch", workload.batch, "--precision", "bf16", *more]


def prepare(session: Session, names: list[str]) -> None:
    """Lets PyTorch compile in the background what the parts of these names will need."""
    if session.rehearses:
        return
    session.background.add("libraries", ["bash", "-c", 'cat "$@" >/dev/null', "bash", *session.large_libraries()],
                           dict(os.environ))
    for name in names:
        for way in ("compiled", "autotuned"):
            if name in WORKLOADS and way in WORKLOADS[name].ways:
                with contextlib.suppress(PartFailed):  # the part will say it
                    words = peer_words(session, WORKLOADS[name], "--way", way, "--timed-steps", 1, "--warmup-steps", 1)
                    session.background.add(name, words, dict(os.environ))


class Peer:
    """A process of pytorch_step.py that runs a round of a way per request."""

    def __init__(self, session: Session, workload: Workload):
        self.session = session
        words = peer_words(session, workload, "--on-demand", "--timed-steps", workload.steps, "--warmup-steps",
                           workload.steps // 10 + 1)
        self.process = session.start(words, dict(os.environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE)
        self.errors: list[str] = []
        self.reader = threading.Thread(target=lambda: self.errors.extend(self.process.stderr), daemon=True)
        self.reader.start()
        self.watch = threading.Timer(max(1.0, session.seconds_left()), end_group, [self.process])
        self.watch.daemon = True
        self.watch.start()

    def started(self) -> None:
        self.answer()

    def answer(self) -> dict:
        for line in self.process.stdout:
            self.session.note(line)
            if line.startswith("{"):
                answer = json.loads(line)
                if "error" in answer:
                    raise PartFailed(f"PyTorch: {answer['error']}")
                return answer
        self.reader.join(timeout=5)
        self.session.note("".join(self.errors))
        raise PartFailed("PyTorch ended early: " + " / ".join(line.strip() for line in self.errors[-2:])[-300:])

    def images_per_second(self, way: str) -> float:
        with contextlib.suppress(OSError):  # answer() reports the reason
            self.process.stdin.write(f"{way}\n")
            self.process.stdin.flush()
        return self.answer()["images_per_second"]

    def close(self) -> None:
        self.watch.cancel()
        end_group(self.process)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self.reader.join(timeout=5)
        self.process.stderr.close()


def our_words(session: Session, workload: Workload, steps: int) -> list:
    samples = session.full(workload.samples, 2 * workload.batch)
    return session.trainer("bench", "step", *session.processor_words(), "--model", workload.model, "--precision",
                           "bf16", "--data", f"synthetic:{samples}x{workload.shape}:10", "--batch-size",
                           workload.batch, "--lr", 0.01, "--momentum", 0.9, "--warmup-steps",
                           steps // 10 + 1, "--timed-steps", steps)


def ours(session: Session, workload: Workload) -> float:
    figures = session.folder / "step.json"
    session.run([*our_words(session, workload, workload.steps), "--json", figures])
    return json.loads(figures.read_text(encoding="utf-8"))["images_per_second"]


def run_rounds(session: Session, workload: Workload, peers: dict[str, Peer],
               problems: list[str]) -> dict[str, list[float]]:
    """Images/s of each side by round, in a rotating order. A side that fails is skipped from then on."""
    def once(name: str) -> float:
        return ours(session, workload) if name == "tutti" else peers[name].images_per_second(name)

    figures: dict[str, list[float]] = {name: [] for name in ("tutti", *peers)}
    for turn in range(-1, session.full(ROUNDS, 2)):  # the first makes and chooses everything
        names = list(figures)
        first = turn % max(1, len(names))
        for name in names[first:] + names[:first]:
            try:
                value = once(name)
                if turn >= 0:
                    figures[name].append(value)
            except PartFailed as error:
                problems.append(f"{workload.name}, {name}: {error}")
                del figures[name]
    return figures


def ratio_to(figures: dict[str, list[float]], side: str) -> float | None:
    """The median over the rounds of the ratio of ours to `side`."""
    if "tutti" not in figures or side not in figures:
        return None
    return statistics.median(ours / theirs for ours, theirs in zip(figures["tutti"], figures[side]))


def rehearsed(workload: Workload) -> Workload:
    return dataclasses.replace(workload, batch=4, steps=2, shape=f"{workload.shape.partition('x')[0]}x16x16")


def speed(session: Session, result: PartResult, name: str) -> None:
    workload = rehearsed(WORKLOADS[name]) if session.rehearses else WORKLOADS[name]
    problems: list[str] = []
    if not session.background.wait_for(name, min(SECONDS_TO_COMPILE, session.seconds_left() - 20)):
        problems.append("PyTorch had not compiled before")
    with session.background.standing_still():
        peers: dict[str, Peer] = {}
        with contextlib.ExitStack() as open_peers:
            try:
                for way in workload.ways:
                    peers[way] = Peer(session, workload)
                    open_peers.callback(peers[way].close)
                for peer in peers.values():
                    peer.started()
            except PartFailed as error:
                problems.append(f"{workload.name}: {error}")
                peers = {}
            figures = run_rounds(session, workload, peers, problems)
    rows = []
    for side, values in figures.items():
        ratio = ratio_to(figures, side)
        median = statistics.median(values)
        rows.append([side, number(median), number(min(values)), number(max(values)),
                     f"{workload.batch / median * 1e3:.3f}", "-" if ratio is None else f"{ratio:.3f}"])
        result.figure(f"{workload.name}.{side}", median)
        if ratio is not None and side != "tutti":
            result.figure(f"{workload.name}.ratio_{side}", ratio)
    result.table(f"{workload}: {session.full(ROUNDS, 2)} rounds of {workload.steps} steps",
                 ["", "images/s", "least", "most", "step ms", "tutti / this"], rows)
    if set(peers) - set(figures) or "tutti" not in figures:
        raise PartFailed("; ".join(problems))
    for problem in problems:
        result.line(problem)


def steps(session: Session, result: PartResult) -> None:
    rows, problems = [], []
    for workload in session.full(ALONE, [rehearsed(LENET_64)]):
        if rows and session.seconds_left() < 12:
            result.line(f"no time was left for {workload}")
            break
        try:
            output = session.run([*our_words(session, workload, workload.steps), "--json",
                                  session.folder / "step.json"])
        except PartFailed as error:
            problems.append(f"{workload.name}: {error}")
            continue
        facts = json.loads((session.folder / "step.json").read_text(encoding="utf-8"))
        lines = [line.strip() for line in output.splitlines()]
        search = next((line for line in lines if line.startswith("plan search")), "plans are known")
        rows.append([str(workload), number(facts["images_per_second"]),
                     f"{workload.batch / facts['images_per_second'] * 1e3:.3f}", search[:120]])
        result.figure(workload.name, facts["images_per_second"])
        if search != "plans are known":
            result.line(f"{workload.name}: {search[:150]}")
    result.table("Steps of ours alone", ["", "images/s", "step ms", "plans"], rows)
    if problems:
        raise PartFailed("; ".join(problems))


def bench_input(session: Session, options: list) -> tuple[dict, list[list[str]]]:
    """Returns what the bench measures, and rows of what it timed, with readers and images/s."""
    figures = session.folder / "input.json"
    session.run(session.trainer("bench", "input", *options, "--json", figures))
    facts = json.loads(figures.read_text(encoding="utf-8"))
    return facts, [[one["what"], str(one["readers"] or "-"), number(one["images_per_second"])]
                   for one in facts["results"]]


def input_alone(session: Session, result: PartResult) -> None:
    """The input's speed with images that are resident on the GPU, and with those that the host augments."""
    rows = []
    for name, augment in (("resident", "shift:2,flip"), ("host", "trivial")):
        facts, timed = bench_input(session, [
            "--data", session.fashion_mnist(), *session.processor_words(), "--model", session.full("resnet18", "lenet"),
            "--batch-size", session.full(256, 16), "--precision", "bf16", "--augment", augment, "--seconds",
            session.full(0.5, 0.1)])
        result.figure(f"{name}_together_over_compute", facts["together_over_compute"])
        rows += [[f"{augment}: {what}", *others] for what, *others in timed]
    result.table("Input", ["", "readers", "images/s"], rows)
    for row in rows:
        result.line(", ".join(row))
