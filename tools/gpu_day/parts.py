"""The parts of a GPU day in order of their value. If a part fails, the next one still runs."""

import contextlib
import dataclasses
import functools
import sys
import time
import traceback
from typing import Callable

from gpu_day import (checkpoints, checks, exchange, photographs, processor, profile, speed, targets,
                     test_programs, training)
from gpu_day.session import PartFailed, PartResult, Results, Session
from peers.tables import number


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    purpose: str
    run: Callable[[Session, PartResult], None]
    seconds: float  # expected on an H200 with 16 cores; none takes over a minute
    is_timed: bool = False  # work in the background stands still meanwhile


def speed_parts(*names: str) -> list[Part]:
    """Their peers wait for what is compiled in the background, so they decide by themselves when it stands still."""
    return [Part(f"speed-{name}", f"images/s and PyTorch's: {speed.WORKLOADS[f'speed-{name}']}",
                 functools.partial(speed.speed, name=f"speed-{name}"), seconds)
            for name, seconds in (one.split(":") for one in names) for seconds in [float(seconds)]]


PARTS = [
    Part("versions", "GPU, driver, libraries, tools, and the trainer's versions", checks.versions, 12),
    Part("smoke", "a few steps of each kind, on 1 and 2 ranks: does anything work at all?", checks.smoke, 35),
    Part("tests-backend", "the tests of kernels, layers and cuDNN, in shards side by side",
         test_programs.tests_of_backend, 50),
    Part("steps", "images/s of ours alone, and the seconds of the plan search", speed.steps, 55, True),
    Part("profile", "where a step's time goes, by phase and by kernel", profile.profile, 25, True),
    Part("ranks", "2 and 4 ranks on the one GPU: near losses", training.ranks, 45),
    *speed_parts("resnet18-256:50", "resnet18-1024:50"),
    Part("convergence", "resnet18 on Fashion-MNIST by jobs/fashion-mnist-93.toml", training.convergence, 25, True),
    Part("exchange", "exact on 1, 2 and 4 ranks: equal bits", exchange.exact, 55),
    Part("processor-tests", "the tests that compute on the CPU, with limited instruction sets",
         test_programs.tests_of_processor, 60),
    Part("processor-digests", "weights of short trainings on the CPU, with limited instruction sets",
         processor.digests, 40),
    Part("processor-bf16", "the CPU's images/s in bf16, 1 and 8 ranks, and PyTorch's",
         functools.partial(processor.speed, precision="bf16"), 55, True),
    Part("processor-fp32", "the CPU's images/s in fp32, 1 and 8 ranks, and PyTorch's",
         functools.partial(processor.speed, precision="fp32"), 55, True),
    *speed_parts("lenet-64:50", "resnet50:60", "resnet18-256-autotuned:55", "resnet18-1024-autotuned:55"),
    Part("tests-nccl", "the tests of NCCL and of sums through the host, side by side", test_programs.tests_of_comm, 60),
    Part("stopped-rank", "one of 2 ranks is stopped: the job ends by itself", training.stopped_rank, 35),
    Part("accuracies", "lenet on 1, 2 and 4 ranks: near accuracies", training.accuracies_agree, 50),
    Part("exchange-others", "sharded and central on 2 and 4 ranks: near losses", exchange.others_stay_near, 50),
    *(Part(f"checkpoints-{model}", f"{model} stopped and resumed: with other ranks, equal bits; between GPU and CPU",
           functools.partial(checkpoints.checkpoints, model=model), 55) for model in ("lenet", "resnet18")),
    Part("checkpoint-stall", "how long training stands still for a checkpoint", checkpoints.stall, 20, True),
    Part("in-flight", "--in-flight 0, 1, 2: speed and equal bits", training.in_flight, 40, True),
    Part("graphs", "--record-steps on, off: speed and equal bits", training.graphs, 30, True),
    Part("input", "images/s of the input alone, of compute, and of both together", speed.input_alone, 25, True),
    Part("photographs", "resnet50 at 224 on an encoded data set: images/s of input, compute, and both",
         photographs.train, 55, True),
    *(Part(name, f"{' and '.join(tools)} of compute-sanitizer on our kernels in steps",
           functools.partial(checks.sanitizers, checks=tools), 60) for name, tools in checks.SANITIZERS.items()),
    Part("ceilings", "bandwidth of a copy and rate of a matrix product", checks.ceilings, 15, True),
    *speed_parts("lenet-512:50", "resnet18-32:60"),
]


def choose(names: list[str]) -> list[Part]:
    for name in names:
        if not any(part.name == name or part.name.startswith(f"{name}-") for part in PARTS):
            sys.exit(f"no part is called '{name}': give some of {', '.join(part.name for part in PARTS)}")
    return [part for part in PARTS if not names or any(part.name == name or part.name.startswith(f"{name}-")
                                                       for name in names)]


def left_to_run(chosen: list[Part], records: dict[str, dict], commit: str) -> list[Part]:
    """Without those that have run, with this commit, on a GPU."""
    def has_run(record: dict | None) -> bool:
        return bool(record) and record["outcome"] == "ran" and record["commit"] == commit and not record["rehearsal"]

    return [part for part in chosen if not has_run(records.get(part.name))]


def run(part: Part, session: Session, results: Results) -> None:
    session.note(f"\n== {part.name}")
    started = time.monotonic()
    session.start_part()
    result = PartResult(results, part.name, session.facts(), session.log)
    outcome = "ran"
    try:
        with session.background.standing_still() if part.is_timed else contextlib.nullcontext():
            part.run(session, result)
        if mistakes := targets.mistakes(part.name, result.record["figures"]):
            raise PartFailed("; ".join(mistakes))
    except PartFailed as error:
        outcome = f"failed: {error}"
    except Exception as error:  # the next parts must run even after a bug
        session.note(traceback.format_exc())
        outcome = f"failed: {type(error).__name__}: {error}"
    seconds = time.monotonic() - started
    result.end(outcome, seconds)
    figures = ", ".join(f"{name} {number(value)}" for name, value in result.record["figures"].items())
    print(f"{part.name}, {seconds:.0f} s: {outcome[:600]}; {figures[:900]}", flush=True)
    for line in result.lines:
        print(f"  {line}", flush=True)


def run_all(chosen: list[Part], session: Session, results: Results) -> list[str]:
    """Runs those that still fit into the time of the call. Returns the names of the others."""
    left_out = []
    for part in chosen:
        if session.seconds_of_call_left() < session.full(part.seconds, 0):
            left_out.append(part.name)
        else:
            run(part, session, results)
    return left_out
