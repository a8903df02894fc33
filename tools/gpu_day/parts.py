"""The parts of a GPU day in their order. If a part fails, the next one still runs."""

import dataclasses
import functools
import sys
import time
import traceback
from typing import Callable

from gpu_day import checkpoints, checks, exchange, speed, targets, training
from gpu_day.session import PartFailed, PartResult, Results, Session


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    purpose: str
    run: Callable[[Session, PartResult], None]


PARTS = [
    Part("versions", "GPU, driver, libraries, tools, and the trainer's versions", checks.versions),
    Part("ceilings", "bandwidth of a copy and rate of a matrix product", checks.ceilings),
    Part("tests", "the bundle's tests, one result each", checks.tests),
    *(Part(name, f"images/s and PyTorch's, {len(workloads)} workloads", functools.partial(speed.speed, name=name))
      for name, workloads in speed.WORKLOADS.items()),
    Part("convergence", "resnet18 on Fashion-MNIST, 10 epochs", training.convergence),
    Part("ranks", "2 and 4 ranks on the one GPU; one of them stopped", training.ranks),
    Part("exchange", "exact on 1, 2 and 4 ranks: equal bits; sharded and central: near losses", exchange.exchange),
    Part("checkpoints", "stopped and resumed: with other ranks, equal bits; between GPU and CPU; the stall",
         checkpoints.checkpoints),
    Part("in-flight", "--in-flight 0, 1, 2: speed and equal bits", training.in_flight),
    Part("graphs", "--record-steps on, off: speed and equal bits", training.graphs),
    Part("profile", "where a step's time goes, by phase and by kernel", checks.profile),
    *(Part(name, f"{' and '.join(tools)} of compute-sanitizer on the tests of kernels",
           functools.partial(checks.sanitizers, checks=tools)) for name, tools in checks.SANITIZERS.items()),
]


def choose(names: list[str]) -> list[Part]:
    for name in names:
        if not any(part.name == name or part.name.startswith(f"{name}-") for part in PARTS):
            sys.exit(f"no part is called '{name}': give some of {', '.join(part.name for part in PARTS)}")
    return [part for part in PARTS if not names or any(part.name == name or part.name.startswith(f"{name}-")
                                                       for name in names)]


def run(part: Part, session: Session, results: Results) -> None:
    print(f"== {part.name}: {part.purpose}", flush=True)
    session.note(f"\n== {part.name}")
    started = time.monotonic()
    session.start_part()
    result = PartResult(results, part.name, session.facts())
    outcome = "ran"
    try:
        part.run(session, result)
        if mistakes := targets.mistakes(part.name, result.record["figures"]):
            raise PartFailed("; ".join(mistakes))
    except PartFailed as error:
        outcome = f"failed: {error}"
    except Exception as error:  # the next parts must run even after a bug
        session.note(traceback.format_exc())
        outcome = f"failed: {type(error).__name__}: {error}"
    result.end(outcome, time.monotonic() - started)
    print(f"{part.name}: {outcome}, {time.monotonic() - started:.0f} s\n", flush=True)
