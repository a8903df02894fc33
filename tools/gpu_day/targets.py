"""Targets on a machine with a GPU, and the result of each: met, missed, or never run."""

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


def apart(prefixes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{prefix}_loss_apart_{ranks}" for prefix in prefixes for ranks in (2, 4))


NEVER_RUN = "never run"
MODELS = ("lenet", "resnet18")
AT_LEAST, AT_MOST = True, False
MUST = [  # a part that misses one has failed
    Target("a few steps of each kind: runs that failed", "smoke", ("failed",), 0, AT_MOST),
    Target("GPU tests of kernels, layers and cuDNN: programs that failed", "tests-backend", ("failed",), 0, AT_MOST),
    Target("GPU tests of NCCL: programs that failed", "tests-nccl", ("failed",), 0, AT_MOST),
    Target("the processor's tests under each limit: programs that failed", "processor-tests", ("failed",), 0, AT_MOST),
    *(Target(f"compute-sanitizer, {' and '.join(tools)}: checks not clean", part, ("unclean",), 0, AT_MOST)
      for part, tools in checks.SANITIZERS.items()),
    Target("2 and 4 ranks: losses of the first steps apart, relative", "ranks", apart(MODELS), 1e-5, AT_MOST),
    Target("2 and 4 ranks: final accuracy apart", "accuracies", ("accuracy_apart_2", "accuracy_apart_4"), 0.01,
           AT_MOST),
    Target("a stopped rank: seconds until the job ends, the deadline being 15", "stopped-rank",
           ("stopped_rank_seconds",), 35, AT_MOST),
    Target("exact on 1, 2 and 4 ranks: networks whose bits differ", "exchange", ("digests_differ",), 0, AT_MOST),
    Target("sharded and central on 2 and 4 ranks: losses of the first steps apart, relative", "exchange-others",
           apart(exchange.INEXACT), 1e-5, AT_MOST),
    *(Target(f"{model} stopped, and resumed with 2 ranks: digests that differ", f"checkpoints-{model}",
             ("digests_differ",), 0, AT_MOST) for model in MODELS),
    *(Target(f"{model} stopped on the GPU, resumed on CPUs, and back: next losses apart, relative",
             f"checkpoints-{model}", ("gpu_to_cpu_loss_apart", "cpu_to_gpu_loss_apart"), 1e-4, AT_MOST)
      for model in MODELS),
    Target("resnet18 on Fashion-MNIST, 5 epochs of jobs/fashion-mnist-93.toml: test accuracy", "convergence",
           ("test_acc",), 0.925, AT_LEAST, 0.93),
    Target("--in-flight 0, 1, 2: networks whose bits differ", "in-flight", ("digests_differ",), 0, AT_MOST),
    Target("--record-steps on, off: networks whose bits differ", "graphs", ("digests_differ",), 0, AT_MOST),
]
SPEED = [
    *(Target(f"resnet18 1x28x28, batch {batch}: images/s", "steps", (f"resnet18_28_{batch}",), wanted, AT_LEAST)
      for batch, wanted in ((256, 110_000), (1024, 145_000))),
    *(Target(f"resnet18 1x28x28, batch {batch}: times PyTorch's best of {', '.join(ways)}",
             f"speed-resnet18-{batch}{part}", tuple(f"resnet18_28_{batch}{name}.ratio_{way}" for way in ways), 1.25,
             AT_LEAST)
      for batch in (256, 1024) for part, name, ways in (("", "", speed.WAYS),
                                                        ("-autotuned", "_autotuned", ("autotuned",)))),
    Target("resnet50 at 224, batch 256: times PyTorch's best of compiled, graph", "speed-resnet50",
           ("resnet50_256.ratio_compiled", "resnet50_256.ratio_graph"), 1.15, AT_LEAST),
    Target("resnet50 at 224, data on the device: images/s", "speed-resnet50", ("resnet50_256.tutti",), 6500, AT_LEAST,
           9000),
    Target("resnet18 3x32x32, batch 512: times PyTorch's best of compiled, graph", "speed-resnet18-32",
           ("resnet18_32_512.ratio_compiled", "resnet18_32_512.ratio_graph"), 1.15, AT_LEAST),
    *(Target(f"lenet, batch {batch}: times the faster of PyTorch eager and compiled", f"speed-lenet-{batch}",
             (f"lenet_{batch}.ratio_eager", f"lenet_{batch}.ratio_compiled"), wanted, AT_LEAST)
      for batch, wanted in ((64, 8), (512, 2))),
    *(Target(f"lenet, batch {batch}: times PyTorch's step as one graph", f"speed-lenet-{batch}",
             (f"lenet_{batch}.ratio_graph",), 1, AT_LEAST) for batch in (64, 512)),
    Target("training stands still for a checkpoint: share of a step", "checkpoint-stall", ("stall_of_step",), 1,
           AT_MOST),
    Target("resnet18 on Fashion-MNIST: seconds per epoch (the tutorial's: 13.4)", "convergence",
           ("seconds_per_epoch",), 1, AT_MOST),
    Target("resnet18 in bf16: kernels of a step one by one, batch 256, ms", "profile", ("resnet18_28_256_kernel_ms",),
           2.33, AT_MOST),
    Target("input and compute together, of compute alone: images on the device", "input",
           ("resident_together_over_compute",), 0.97, AT_LEAST),
    Target("resnet50 at 224 on photographs: input and compute together, of compute alone", "photographs",
           ("together_over_compute",), 0.95, AT_LEAST),
    Target("resnet50 at 224 on photographs: share of the time waiting for images", "photographs", ("data_share",), 0.05,
           AT_MOST),
    Target("the CPU's weights under 4 limits of its instructions: trainings that differ", "processor-digests",
           ("digests_differ",), 0, AT_MOST),
    Target("the CPU in bf16, AVX2 only: times its fp32", "processor-bf16", ("avx2_bf16_to_fp32",), 0.9, AT_LEAST),
    Target("the CPU in bf16, 1 rank: times PyTorch's", "processor-bf16", ("ratio_1",), 1, AT_LEAST, 1.3),
    Target("the CPU in bf16, 8 ranks: efficiency", "processor-bf16", ("efficiency",), 0.85, AT_LEAST),
    Target("the CPU in fp32, 1 rank: times PyTorch's", "processor-fp32", ("ratio_1",), 1.5, AT_LEAST),
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
            result = "no figure" if tried else NEVER_RUN
        elif not target.meets(value, target.limit):
            result = "MISSED"
        else:
            result = "met, stretch too" if target.stretch and target.meets(value, target.stretch) else "met"
        rows.append([target.text, target.wanted(), "-" if value is None else number(value), result])
    return rows
