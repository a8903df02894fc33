"""Targets on a GPU, and the result of each: met, missed, or never run."""

import dataclasses
from typing import Callable

from gpu_day import checks, exchange, speed
from gpu_day.tables import number

Figures = Callable[[str, str], float | None]  # of a part, by name


@dataclasses.dataclass(frozen=True)
class Target:
    text: str
    part: str
    value: Callable[[Figures], float | None]
    limit: float | None  # none: any figure is a result
    at_least: bool
    stretch: float | None = None

    def wanted(self) -> str:
        if self.limit is None:
            return "a verdict"
        sign = "≥" if self.at_least else "≤"
        return f"{sign} {number(self.limit)}" + (f" (stretch {number(self.stretch)})" if self.stretch else "")

    def meets(self, value: float, limit: float) -> bool:
        return value >= limit if self.at_least else value <= limit


def figure(part: str, name: str) -> Callable[[Figures], float | None]:
    return lambda figures: figures(part, name)


def of_workloads(part: str, name: str, choose: Callable) -> Callable[[Figures], float | None]:
    """The least or greatest figure of a part's workloads, or None if one is missing."""
    def value(figures: Figures) -> float | None:
        found = [figures(part, f"{workload.name}.{name}") for workload in speed.WORKLOADS[part]]
        return None if None in found else choose(found)
    return value


def most(part: str, names: tuple[str, ...]) -> Callable[[Figures], float | None]:
    def value(figures: Figures) -> float | None:
        found = [figures(part, name) for name in names]
        return None if None in found else max(found)
    return value


def ratio_to_the_faster(figures: Figures) -> float | None:
    """The ratio of lenet with batch 64 to eager or compiled PyTorch."""
    found = [figures("speed-lenet", f"lenet_64.ratio_{side}") for side in ("eager", "compiled")]
    return None if None in found else min(found)


def milliseconds_of_60000(figures: Figures) -> float | None:
    images_per_second = figures("speed-lenet", "lenet_64.tutti")
    return 60000 / images_per_second * 1e3 if images_per_second else None


LENET, R18, R18_COLOUR, R50 = speed.WORKLOADS
LOSSES = tuple(f"{model}_loss_apart_{ranks}" for model in ("lenet", "resnet18") for ranks in (2, 4))
APART = tuple(f"{way}_loss_apart_{ranks}" for way in exchange.INEXACT for ranks in (2, 4))
AT_LEAST, AT_MOST = True, False
TARGETS = [
    Target("GPU tests, layers against references: programs that failed", "tests", figure("tests", "failed"), 0,
           AT_MOST),
    *(Target(f"compute-sanitizer, {' and '.join(tools)}: checks not clean", part, figure(part, "unclean"), 0, AT_MOST)
      for part, tools in checks.SANITIZERS.items()),
    *(Target(f"{part.removeprefix('speed-')}: times compiled PyTorch, the least over batch sizes", part,
             of_workloads(part, "ratio_compiled", min), 1.15 if part == R18 else 1.0, AT_LEAST)
      for part in (R18, R18_COLOUR, LENET, R50)),
    Target("resnet18 1x28x28: images/s, best batch", R18, of_workloads(R18, "tutti", max), 95000, AT_LEAST, 125000),
    Target("resnet18 3x32x32: images/s, best batch", R18_COLOUR, of_workloads(R18_COLOUR, "tutti", max), 77000,
           AT_LEAST, 100000),
    Target("small CNN, batch 64: times the faster of PyTorch eager and compiled", LENET, ratio_to_the_faster, 8,
           AT_LEAST),
    Target("small CNN, batch 64: ms per 60,000 images", LENET, milliseconds_of_60000, 60, AT_MOST, 45),
    Target("resnet50 at 224, data on the device: images/s", R50, of_workloads(R50, "tutti", max), 6500, AT_LEAST, 9000),
    Target("2 and 4 ranks: losses of the first steps apart, relative", "ranks", most("ranks", LOSSES), 1e-5, AT_MOST),
    Target("2 and 4 ranks: final accuracy apart", "ranks", most("ranks", ("accuracy_apart_2", "accuracy_apart_4")),
           0.01, AT_MOST),
    Target("a stopped rank: seconds until the job ends, the deadline being 15", "ranks",
           figure("ranks", "stopped_rank_seconds"), 35, AT_MOST),
    Target("exact on 1, 2 and 4 ranks: networks whose bits differ", "exchange", figure("exchange", "digests_differ"), 0,
           AT_MOST),
    Target("sharded and central on 2 and 4 ranks: losses of the first steps apart, relative", "exchange",
           most("exchange", APART), 1e-5, AT_MOST),
    Target("stopped, and resumed with 2 ranks: networks whose bits differ", "checkpoints",
           figure("checkpoints", "digests_differ"), 0, AT_MOST),
    Target("stopped on the GPU, resumed on CPUs, and back: next losses apart, relative", "checkpoints",
           most("checkpoints", tuple(f"{model}_{way}_loss_apart" for model in ("lenet", "resnet18")
                                     for way in ("gpu_to_cpu", "cpu_to_gpu"))), 1e-4, AT_MOST),
    Target("training stands still for a checkpoint: share of a step", "checkpoints",
           figure("checkpoints", "stall_of_step"), 1, AT_MOST),
    Target("resnet18 on Fashion-MNIST, 10 epochs: test accuracy", "convergence", figure("convergence", "test_acc"),
           0.92, AT_LEAST),
    Target("the same: seconds per epoch (the tutorial's: 13.4)", "convergence",
           figure("convergence", "seconds_per_epoch"), 13.4, AT_MOST),
    Target("GPU and CPU ranks in one job: final accuracy apart", "mixed", figure("mixed", "accuracy_apart"), 0.01,
           AT_MOST),
    Target("the same: times the GPU's images/s alone (above 1 the CPUs were worth it)", "mixed",
           figure("mixed", "gain"), None, AT_LEAST),
    Target("--in-flight 0, 1, 2: networks whose bits differ", "in-flight", figure("in-flight", "digests_differ"), 0,
           AT_MOST),
    Target("--record-steps on, off: networks whose bits differ", "graphs", figure("graphs", "digests_differ"), 0,
           AT_MOST),
]


def results(parts: dict[str, dict]) -> list[list[str]]:
    """Returns text, limit, figure and result of each target. A rehearsal does not count as a run."""
    def figures(part: str, name: str) -> float | None:
        record = parts.get(part)
        return None if record is None or record["rehearsal"] else record["figures"].get(name)

    rows = []
    for target in TARGETS:
        value = target.value(figures)
        tried = target.part in parts and not parts[target.part]["rehearsal"]
        if value is None:
            result = "no figure" if tried else "never run"
        elif target.limit is None:
            result = "measured"
        elif not target.meets(value, target.limit):
            result = "MISSED"
        else:
            result = "met, stretch too" if target.stretch and target.meets(value, target.stretch) else "met"
        rows.append([target.text, target.wanted(), "-" if value is None else number(value), result])
    return rows
