"""The part that shows where a step's time goes, from the durations of its kernels by ncu.

ncu measures the duration alone: any other metric makes it run every kernel several times, with the memory saved and
restored.
"""

import collections
import csv
import re

from gpu_day.session import PartFailed, PartResult, Session
from gpu_day.speed import LENET_64, R18_256, R18_1024, Workload, our_words, rehearsed
from peers.tables import number

DURATION = "gpu__time_duration.sum"
SKIPPED, WATCHED = 430, 460  # launches: those of the start and of the steps before graphs; more than those of two steps
PHASES = [  # of a step, by the names of kernels; the first match counts
    ("convolutions", r"cudnn|conv|xmma|implicit|wgrad|dgrad|fprop|nhwc|^kernel|workspace"),
    ("dense layers", r"gemm|cublas|cutlass|nvjet|splitK|linear"), ("batch norms", r"norm|statistic"),
    ("pooling", r"pool|average"), ("loss", r"loss|softmax|cross_entropy"),
    ("optimizer", r"sgd|adam|lars|momentum|optimi|step_each|update"), ("sums between ranks", r"nccl"),
    ("biases and ReLU", r"relu|output_gradient"), ("images", r"image|augment|gather|batch"),
    ("formats", r"convert|format|transpose|pad|pack")]


def read_durations(text: str) -> list[tuple[str, float]]:
    """Kernels and their seconds in the order of their launches, from ncu's table in base units."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        raise PartFailed(f"ncu gave no table: {' / '.join(lines[-3:])[-300:]}")
    units = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "s": 1}  # ns, or nsecond
    return [(row["Kernel Name"], float(row["Metric Value"].replace(",", "")) * units[row["Metric Unit"][0]])
            for row in csv.DictReader(lines[begin:]) if row.get("Metric Value") and row["Metric Name"] == DURATION]


def one_step(launches: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The launches from a kernel that runs once in a step to its next run: the last whole step."""
    places = collections.defaultdict(list)
    for place, (kernel, _) in enumerate(launches):
        places[kernel].append(place)
    repeated = [where for where in places.values() if len(where) > 1]
    if not repeated:
        raise PartFailed("no kernel was seen twice, so no step is whole")
    begin, end = max((where[-2:] for where in repeated if len(where) == min(map(len, repeated))),
                     key=lambda pair: pair[1] - pair[0])
    return launches[begin:end]


def phase_of(kernel: str) -> str:
    return next((phase for phase, pattern in PHASES if re.search(pattern, kernel, re.IGNORECASE)), "other")


def profile_step(session: Session, workload: Workload) -> list[tuple[str, float]]:
    session.run(our_words(session, workload, 1))  # fills the plan cache, so that the search is not in the profile
    options = ["--graph-profiling", "node", "--clock-control", "none", "--cache-control", "none", "--csv",
               "--print-units", "base", "--print-kernel-base", "function", "--launch-skip", SKIPPED, "--launch-count",
               WATCHED]
    words = our_words(session, workload, 25 if workload.model == "lenet" else 5)
    text = session.run([*session.tool("ncu"), *options, "--metrics", DURATION, *words])
    with (session.out / "profile.csv").open("a", encoding="utf-8") as file:
        file.write(f"{workload}\n{text}\n")
    return one_step(read_durations(text))


def profile(session: Session, result: PartResult) -> None:
    for workload in session.full([R18_256, R18_1024, LENET_64], [rehearsed(LENET_64)]):
        step = profile_step(session, workload)
        seconds = sum(spent for _, spent in step)
        by_phase, by_kernel = collections.defaultdict(list), collections.defaultdict(list)
        for kernel, spent in step:
            by_phase[phase_of(kernel)].append(spent)
            by_kernel[kernel].append(spent)
        for title, groups in (("by phase", by_phase), ("by kernel", by_kernel)):
            rows = [[name[:60], number(len(all_spent)), f"{sum(all_spent) * 1e6:,.1f}",
                     f"{100 * sum(all_spent) / seconds:.1f}"]
                    for name, all_spent in sorted(groups.items(), key=lambda one: -sum(one[1]))[:25]]
            result.table(f"One step of {workload}, {title}: {seconds * 1e3:.3f} ms in kernels one at a time",
                         ["", "launches", "us", "%"], rows)
        result.figure(f"{workload.name}_kernel_ms", seconds * 1e3)
        ours = [f"{name} {len(spent)}x {sum(spent) * 1e6:.0f}" for name, spent in
                sorted(by_kernel.items(), key=lambda one: -sum(one[1])) if phase_of(name) != "convolutions"]
        result.line(f"{workload.name}, us: " + ", ".join(f"{name} {sum(spent) * 1e6:.0f}" for name, spent in
                                                         sorted(by_phase.items(), key=lambda one: -sum(one[1]))))
        result.line(f"{workload.name}, us: " + ", ".join(ours[:12]))
