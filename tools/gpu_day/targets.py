"""Targets on a GPU, and the result of each: met, missed, or never run."""

import dataclasses

from gpu_day import checks, exchange, speed
from peers.tables import number


@dataclasses.dataclass(frozen=True)
class Target:
    text: str
    part: str
    names: tuple[str, ...]  # of figures of the part
    limit: float
    at_least: bool
    stretch: float | None = None
    best_counts: bool = False  # instead of the worst

    def wanted(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{sign} {number(self.limit)}" + (f" (stretch {number(self.stretch)})" if self.stretch else "")

    def value(self, figures: dict[str, float]) -> float | None:
        """The figure that counts; None if one is missing."""
        if not set(self.names) <= set(figures):
            return None
        takes_greatest = self.at_least == self.best_counts
        return (max if takes_greatest else min)(figures[name] for name in self.names)

    def meets(self, value: float, limit: float) -> bool:
        return value >= limit if self.at_least else value <= limit


def of_workloads(part: str, name: str) -> tuple[str, ...]:
    return tuple(f"{workload.name}.{name}" for workload in speed.WORKLOADS[part])


def apart(prefixes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{prefix}_loss_apart_{ranks}" for prefix in prefixes for ranks in (2, 4))


LENET, R18, R18_COLOUR, R50 = speed.WORKLOADS
MODELS = ("lenet", "resnet18")
AT_LEAST, AT_MOST = True, False
MUST = [  # a part that misses one has failed
    Target("GPU tests, layers against references: programs that failed", "tests", ("failed",), 0, AT_MOST),
    *(Target(f"compute-sanitizer, {' and '.join(tools)}: checks not clean", part, ("unclean",), 0, AT_MOST)
      for part, tools in checks.SANITIZERS.items()),
    Target("2 and 4 ranks: losses of the first steps apart, relative", "ranks", apart(MODELS), 1e-5, AT_MOST),
    Target("2 and 4 ranks: final accuracy apart", "ranks", ("accuracy_apart_2", "accuracy_apart_4"), 0.01, AT_MOST),
    Target("a stopped rank: seconds until the job ends, the deadline being 15", "ranks", ("stopped_rank_seconds",), 35,
           AT_MOST),
    Target("exact on 1, 2 and 4 ranks: networks whose bits differ", "exchange", ("digests_differ",), 0, AT_MOST),
    Target("sharded and central on 2 and 4 ranks: losses of the first steps apart, relative", "exchange",
           apart(exchange.INEXACT), 1e-5, AT_MOST),
    Target("stopped, and resumed with 2 ranks: networks whose bits differ", "checkpoints", ("digests_differ",), 0,
           AT_MOST),
    Target("stopped on the GPU, resumed on CPUs, and back: next losses apart, relative", "checkpoints",
           tuple(f"{model}_{way}_loss_apart" for model in MODELS for way in ("gpu_to_cpu", "cpu_to_gpu")), 1e-4,
           AT_MOST),
    Target("resnet18 on Fashion-MNIST, 10 epochs: test accuracy", "convergence", ("test_acc",), 0.92, AT_LEAST),
    Target("--in-flight 0, 1, 2: networks whose bits differ", "in-flight", ("digests_differ",), 0, AT_MOST),
    Target("--record-steps on, off: networks whose bits differ", "graphs", ("digests_differ",), 0, AT_MOST),
]
SPEED = [
    *(Target(f"{part.removeprefix('speed-')}: times compiled PyTorch, the least over batch sizes", part,
             of_workloads(part, "ratio_compiled"), 1.15 if part == R18 else 1.0, AT_LEAST)
      for part in (R18, R18_COLOUR, LENET, R50)),
    Target("resnet18 1x28x28: images/s, best batch", R18, of_workloads(R18, "tutti"), 95000, AT_LEAST, 125000, True),
    Target("resnet18 3x32x32: images/s, best batch", R18_COLOUR, of_workloads(R18_COLOUR, "tutti"), 77000, AT_LEAST,
           100000, True),
    Target("small CNN, batch 64: times the faster of PyTorch eager and compiled", LENET,
           ("lenet_64.ratio_eager", "lenet_64.ratio_compiled"), 8, AT_LEAST),
    Target("small CNN, batch 64: images/s (60 ms for 60,000)", LENET, ("lenet_64.tutti",), 1e6, AT_LEAST, 1333333),
    Target("resnet50 at 224, data on the device: images/s", R50, of_workloads(R50, "tutti"), 6500, AT_LEAST, 9000),
    Target("training stands still for a checkpoint: share of a step", "checkpoints", ("stall_of_step",), 1, AT_MOST),
    Target("resnet18 on Fashion-MNIST: seconds per epoch (the tutorial's: 13.4)", "convergence",
           ("seconds_per_epoch",), 13.4, AT_MOST),
]


def mistakes(part: str, figures: dict[str, float]) -> list[str]:
    """What a part that has ended misses of what it must meet. A rehearsal has some of the figures only."""
    found = []
    for target in MUST:
        values = [figures[name] for name in target.names if name in figures]
        if target.part == part and not (values and all(target.meets(value, target.limit) for value in values)):
            found.append(f"{target.text} {target.wanted()}: {', '.join(map(number, values)) or 'no figure'}")
    return found


def results(parts: dict[str, dict]) -> list[list[str]]:
    """Returns text, limit, figure and result of each target. A rehearsal does not count as a run."""
    rows = []
    for target in MUST + SPEED:
        record = parts.get(target.part)
        tried = record is not None and not record["rehearsal"]
        value = target.value(record["figures"]) if tried else None
        if value is None:
            result = "no figure" if tried else "never run"
        elif not target.meets(value, target.limit):
            result = "MISSED"
        else:
            result = "met, stretch too" if target.stretch and target.meets(value, target.stretch) else "met"
        rows.append([target.text, target.wanted(), "-" if value is None else number(value), result])
    return rows
