#!/usr/bin/env python3
"""Compares weak scaling over the cores of one machine with PyTorch's DistributedDataParallel over gloo, in pairs.

Each round measures ours and PyTorch's one after the other: a job of N ranks, N independent single processes at the
same time, and one process alone. All have one thread and one core each, the same batch a rank, and
synthetic images in memory. Efficiency is the job's images/s over the sum of the single processes', or over N times
that of one process. Ratios are computed per round. A step of a job takes as long as on its slowest rank. Ours is
started by the given launcher, PyTorch's ranks are bound to a core each, with the settings of pytorch_step.py.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

import peer_python
from compare_speed import BATCHES_IN_MEMORY, PEER, Range, environment, with_programs

SIDES = ("tutti", "pytorch")
WAYS = ("together", "apart", "alone")
CASES = ("resnet18:fp32:8", "resnet18:bf16:10", "lenet:fp32:200")
SECONDS_TO_END = 300
# A round of one run of everything: (side, way) -> images/s of all its ranks.
Round = dict[tuple[str, str], float]


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    precision: str
    steps: int

    @classmethod
    def of(cls, text: str) -> "Case":
        model, precision, steps = text.split(":")
        return cls(model, precision, int(steps))

    def __str__(self) -> str:
        return f"{self.model} {self.precision}"


@dataclasses.dataclass(frozen=True)
class Process:
    command: list[str]
    core: int | None  # none: its launcher binds it
    figures: str | None  # the file of its JSON; none: the last line of its output

    def start(self, environment_: dict[str, str]) -> subprocess.Popen:
        bind = None if self.core is None else lambda: os.sched_setaffinity(0, {self.core})
        return subprocess.Popen(self.command, preexec_fn=bind, env=environment_, text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def processes(side: str, way: str, case: Case, options: argparse.Namespace, folder: str) -> list[Process]:
    steps = ["--model", case.model, "--precision", case.precision, "--threads", "1",
             "--warmup-steps", str(options.warmup_steps), "--timed-steps", str(case.steps)]
    cores = sorted(os.sched_getaffinity(0))[:options.ranks]
    count = 1 if way == "alone" else options.ranks
    if side == "pytorch":
        peer = [options.python, str(PEER), *steps, "--batch", str(options.batch), "--shape", options.shape]
        method = f"file://{folder}/rendezvous?world_size={count}"
        init = [["--init-method", f"{method}&rank={rank}"] if way == "together" else [] for rank in range(count)]
        return [Process([*peer, *init[i]], cores[i], None) for i in range(count)]

    def ours(name: int, ranks: int) -> list[str]:
        batch = options.batch * ranks
        return [options.trainer, "bench", "step", *steps, "--batch-size", str(batch), "--lr", "0.01", "--momentum",
                "0.9", "--data", f"synthetic:{batch * BATCHES_IN_MEMORY}x{options.shape}:10", "--json",
                f"{folder}/{name}.json"]

    if way == "together":
        launcher = shlex.split(options.launcher.format(ranks=count))
        return [Process([*launcher, *ours(0, count)], None, f"{folder}/0.json")]
    return [Process(ours(i, 1), cores[i], f"{folder}/{i}.json") for i in range(count)]


def environment_of(side: str) -> dict[str, str]:
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
    return environment(side, 1) | as_root | {"GLOO_SOCKET_IFNAME": "lo"}


def run(side: str, way: str, case: Case, options: argparse.Namespace) -> list[dict]:
    """Returns the figures of all processes of one run, which start at the same time."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = processes(side, way, case, options, folder)
        started = [process.start(environment_of(side)) for process in wanted]
        try:
            outputs = [process.communicate(timeout=SECONDS_TO_END) for process in started]
        finally:
            for process in started:
                process.kill()
        for process, (_, errors) in zip(started, outputs):
            if process.returncode != 0:
                sys.exit(f"{case}: {side} {way} ended with {process.returncode}: {errors.strip()[-2000:]}")
        return [json.loads(pathlib.Path(process.figures).read_text(encoding="utf-8") if process.figures
                           else output.splitlines()[-1]) for process, (output, _) in zip(wanted, outputs)]


def run_rounds(case: Case, options: argparse.Namespace) -> tuple[list[Round], dict[str, str]]:
    rounds, libraries = [], {}
    for number in range(options.rounds):
        runs = [(side, way) for way in WAYS for side in SIDES]
        speeds = {}
        for side, way in runs[number % len(runs):] + runs[:number % len(runs)]:
            figures = run(side, way, case, options)
            speeds[side, way] = sum(one["images_per_second"] for one in figures)
            libraries.setdefault(side, figures[0]["libraries"])
        rounds.append(speeds)
        print(f"{case}, round {number + 1}: " + "; ".join(
            f"{side} " + ", ".join(f"{way} {speeds[side, way]:.1f}" for way in WAYS) + " images/s, efficiency "
            f"{efficiency(speeds, side, 'apart', options.ranks):.3f}" for side in SIDES), flush=True)
    return rounds, libraries


def efficiency(speeds: Round, side: str, way: str, ranks: int) -> float:
    """The efficiency of the job of all ranks, compared with single processes at the same time, or with one alone."""
    return speeds[side, "together"] / (speeds[side, way] * (ranks if way == "alone" else 1))


def summary(rounds: list[Round], ranks: int) -> dict[str, dict[str, Range]]:
    """The ranges of each side; "ratios" are ours to PyTorch's."""
    def over(figure) -> Range:
        return Range.of([figure(one) for one in rounds])

    sides = {side: {way: over(lambda one, way=way: one[side, way]) for way in WAYS}
             | {f"efficiency_{way}": over(lambda one, way=way: efficiency(one, side, way, ranks))
                for way in ("apart", "alone")} for side in SIDES}
    return sides | {"ratios": {
        "together": over(lambda one: one["tutti", "together"] / one["pytorch", "together"]),
        "efficiency": over(lambda one: efficiency(one, "tutti", "apart", ranks)
                           / efficiency(one, "pytorch", "apart", ranks))}}


def report(case: Case, options: argparse.Namespace, figures: dict[str, dict[str, Range]]) -> None:
    print(f"\n{case}, {options.batch} of {options.shape} a rank, {options.ranks} ranks of 1 core, median (min-max) of "
          f"{options.rounds} rounds of {case.steps} steps")
    print(f"{'images/s':<10}" + "".join(f" {way:>24}" for way in WAYS) + f" {'efficiency':>20} {'to one alone':>20}")
    for side in SIDES:
        print(f"{side:<10}" + "".join(f" {figures[side][way].text(1):>24}" for way in WAYS)
              + "".join(f" {figures[side][f'efficiency_{way}'].text(3):>20}" for way in ("apart", "alone")))
    print("tutti / pytorch, round by round: " + ", ".join(f"{name} {ratio.text(3)}"
                                                          for name, ratio in figures["ratios"].items()) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog=f"A Python with torch: {peer_python.REMEDY}")
    parser.add_argument("--case", action="append", type=Case.of, metavar="MODEL:PRECISION:STEPS",
                        help="steps are timed in each run; default: " + ", ".join(CASES))
    parser.add_argument("--ranks", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=64, help="of a rank; default: %(default)s")
    parser.add_argument("--shape", default="1x28x28", help="of an image; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="of each case; default: %(default)s")
    parser.add_argument("--warmup-steps", type=int, default=3, help="before the timed ones; default: %(default)s")
    parser.add_argument("--launcher", default="mpirun -np {ranks} --bind-to core",
                        help="of our ranks; default: %(default)s, which 2 ranks get from Open MPI unasked")
    options = with_programs(parser)
    options.case = options.case or [Case.of(text) for text in CASES]
    if len(os.sched_getaffinity(0)) < options.ranks:
        parser.error(f"{options.ranks} ranks of a core each, but this process may use "
                     f"{len(os.sched_getaffinity(0))} cores: give fewer --ranks")
    return options


def main() -> None:
    options = parse()
    results, tables = [], []
    for case in options.case:
        rounds, libraries = run_rounds(case, options)
        figures = summary(rounds, options.ranks)
        tables.append((case, figures))
        results.append({**dataclasses.asdict(case), "libraries": libraries,
                        "rounds": [{" ".join(run): speed for run, speed in one.items()} for one in rounds],
                        "summary": {side: {name: dataclasses.asdict(one) for name, one in ranges.items()}
                                    for side, ranges in figures.items()}})
    for case, figures in tables:
        report(case, options, figures)
    for side, text in results[0]["libraries"].items():
        print(f"{side}: {text}")
    if options.json:
        everything = {"options": vars(options) | {"case": list(map(str, options.case))}, "results": results}
        pathlib.Path(options.json).write_text(json.dumps(everything, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
