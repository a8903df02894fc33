#!/usr/bin/env python3
"""Compares the speed of training steps with PyTorch's, eager and compiled, in pairs.

Each round runs the three one after another, each as a separate process on the same cores, in an order that rotates
from round to round. Ratios are computed per round, to the faster of the two. Synthetic images in memory,
SGD with momentum 0.9, channels_last for PyTorch; bf16 is autocast there. Peak memory is the largest resident set;
the first step counts from the start of the process, libraries, data and compilation included (less what the compiler's
cache has from earlier rounds). For PyTorch, glibc's malloc is set not to return freed memory, which makes it faster.
Before each run, memory is touched and freed: the host of a virtual machine reclaims free memory, and the first process
that touches it again would be slowed down.
"""

import argparse
import dataclasses
import json
import mmap
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import peer_python

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = pathlib.Path(__file__).with_name("pytorch_step.py")
BATCHES_IN_MEMORY = 16
TOUCHED_BYTES = 3 << 29  # more than any side's peak
SIDES = ("tutti", "eager", "compiled")
FIGURES = ("images_per_second", "peak_resident_mib", "first_step_seconds")


@dataclasses.dataclass(frozen=True)
class Range:
    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: list[float]) -> "Range":
        return cls(statistics.median(values), min(values), max(values))

    def text(self, digits: int) -> str:
        return f"{self.median:.{digits}f} ({self.least:.{digits}f}-{self.most:.{digits}f})"


def environment(side: str, threads: int) -> dict[str, str]:
    """Sets the number of threads and, for PyTorch, a malloc that reuses freed memory, which is far faster."""
    common = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if side == "tutti":
        return common
    return common | {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
                     "MALLOC_TOP_PAD_": str(256 << 20), "TORCHINDUCTOR_COMPILE_THREADS": "1"}


def pinned(options: argparse.Namespace) -> list[str]:
    cores = sorted(os.sched_getaffinity(0))[:options.threads]
    return ["taskset", "-c", ",".join(map(str, cores))] if shutil.which("taskset") else []


def command(side: str, options: argparse.Namespace, figures: str) -> list[str]:
    steps = ["--model", options.model, "--precision", options.precision, "--threads", str(options.threads),
             "--warmup-steps", str(options.warmup_steps), "--timed-steps", str(options.steps)]
    if side == "tutti":
        data = f"synthetic:{options.batch * BATCHES_IN_MEMORY}x{options.shape}:10"
        return [options.trainer, "bench", "step", *steps, "--data", data, "--batch-size", str(options.batch),
                "--lr", "0.01", "--momentum", "0.9", "--json", figures]
    return [options.python, str(PEER), *steps, "--batch", str(options.batch), "--shape", options.shape, "--way", side]


def touch_memory() -> None:
    """Touches memory, in huge pages if possible, since hosts reclaim those."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    with mmap.mmap(-1, min(TOUCHED_BYTES, available // 2 // mmap.PAGESIZE * mmap.PAGESIZE),
                   flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for place in range(0, len(memory), mmap.PAGESIZE):
            memory[place] = 1


def run(side: str, options: argparse.Namespace) -> dict:
    touch_memory()
    with tempfile.TemporaryDirectory() as folder:
        figures = f"{folder}/figures.json"
        result = subprocess.run([*pinned(options), *command(side, options, figures)], check=False, text=True,
                                env=environment(side, options.threads), capture_output=True)
        if result.returncode != 0:
            raise RuntimeError(f"{side} ended with {result.returncode}: {result.stderr.strip()[-2000:]}")
        text = pathlib.Path(figures).read_text(encoding="utf-8") if side == "tutti" else result.stdout.splitlines()[-1]
        return json.loads(text)


def sides_here() -> list[str]:
    if shutil.which(os.environ.get("CXX", "g++")):
        return list(SIDES)
    print("no C++ compiler for torch.compile: eager alone is the peer (give one as CXX)")
    return [side for side in SIDES if side != "compiled"]


def run_rounds(options: argparse.Namespace) -> list[dict[str, dict]]:
    sides = sides_here()
    rounds = []
    for number in range(options.rounds):
        turn = number % len(sides)
        figures = {}
        for side in sides[turn:] + sides[:turn]:
            try:
                figures[side] = run(side, options)
            except RuntimeError as error:
                if side != "compiled":
                    sys.exit(str(error))
                print(f"eager alone is the peer from here on; torch.compile fails: {error}")
                sides.remove(side)
        rounds.append(figures)
        print(f"round {number + 1}: " + ", ".join(f"{side} {figures[side]['images_per_second']:.1f}" for side in SIDES
                                                  if side in figures) + f" images/s, ratio {ratio(figures):.3f}",
              flush=True)
    return rounds


def ratio(figures: dict[str, dict]) -> float:
    peers = [figures[side]["images_per_second"] for side in SIDES[1:] if side in figures]
    return figures["tutti"]["images_per_second"] / max(peers)


def summary(rounds: list[dict[str, dict]]) -> dict[str, dict[str, Range]]:
    return {side: {figure: Range.of([one[side][figure] for one in rounds if side in one]) for figure in FIGURES}
            for side in SIDES if any(side in one for one in rounds)}


def report(options: argparse.Namespace, rounds: list[dict[str, dict]]) -> None:
    print(f"\n{options.model} {options.precision}, batch {options.batch} of {options.shape}, {options.threads} "
          f"threads, median (min-max) of {len(rounds)} rounds of {options.steps} steps")
    print(f"{'':<10} {'images/s':>24} {'peak MiB':>20} {'first step s':>20}")
    for side, figures in summary(rounds).items():
        cells = zip(FIGURES, (24, 20, 20), (1, 0, 2))
        print(f"{side:<10} " + " ".join(f"{figures[figure].text(digits):>{width}}" for figure, width, digits in cells))
    print(f"tutti / the faster of its peers, round by round: {Range.of([ratio(one) for one in rounds]).text(3)}")
    for side in ("tutti", "eager"):
        print(f"{side}: {rounds[0][side]['libraries']}")


def has_torch(python: str) -> bool:
    return subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0


def with_programs(parser: argparse.ArgumentParser, needs_peer: bool = True) -> argparse.Namespace:
    """Parses the options, with those of all comparisons. Fails if a needed program is missing."""
    parser.add_argument("--trainer", default=str(ROOT / "trainer"),
                        help="default: %(default)s, the link that tools/demo and tools/test leave")
    parser.add_argument("--python", default=peer_python.interpreter(), help="one with torch; default: %(default)s")
    parser.add_argument("--json", help="write every run's figures to this file, too")
    options = parser.parse_args()
    if not pathlib.Path(options.trainer).is_file():
        parser.error(f"{options.trainer} is not there: tools/demo builds it")
    if needs_peer and not has_torch(options.python):
        parser.error(f"{options.python} has no torch: {peer_python.REMEDY}")
    return options


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog=f"A Python with torch: {peer_python.REMEDY}")
    parser.add_argument("--model", default="resnet18", help="or lenet, resnet34, resnet50; default: %(default)s")
    parser.add_argument("--batch", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--shape", default="1x28x28", help="of an image; default: %(default)s")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=1, help="of each side; default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=20, help="timed in each run; default: %(default)s")
    parser.add_argument("--warmup-steps", type=int, default=5, help="before them; default: %(default)s")
    return with_programs(parser)


def main() -> None:
    options = parse()
    rounds = run_rounds(options)
    report(options, rounds)
    if options.json:
        results = {"options": vars(options), "rounds": rounds, "ratios": [ratio(one) for one in rounds]}
        pathlib.Path(options.json).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
