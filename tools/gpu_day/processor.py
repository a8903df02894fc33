"""The parts on the machine's processor: equal bits with limited instruction sets, and speed against PyTorch's."""

import json
import os
import pathlib
import subprocess
import tempfile
from concurrent import futures
from typing import Callable

from gpu_day.session import PEERS, PartFailed, PartResult, Session, end_group
from gpu_day.training import option_words, records_of
from peers.tables import number

LIMITS = ["SSE2", "AVX2", "AVX512", "AVX512_BF16", ""]  # of TUTTI_MAX_CPU_ISA; the last is no limit
RANKS, BATCH = 8, 64  # of speed; the batch is a rank's
STEPS = {"fp32": 4, "bf16": 5}
CASES = {  # ranks, options
    "lenet fp32": (1, {"model": "lenet", "precision": "fp32"}),
    "lenet bf16": (1, {"model": "lenet", "precision": "bf16"}),
    "resnet18 fp32": (1, {"model": "resnet18", "precision": "fp32"}),
    "resnet18 bf16": (1, {"model": "resnet18", "precision": "bf16"}),
    "resnet18 bf16, batch norm global, 2 ranks": (2, {"model": "resnet18", "precision": "bf16", "parts": 2,
                                                      "batch-norm": "global"}),
}


def limited(limit: str) -> dict[str, str]:
    return {"TUTTI_MAX_CPU_ISA": limit} if limit else {}


def digest_of(session: Session, name: str, limit: str) -> str:
    ranks, options = CASES[name]
    with tempfile.TemporaryDirectory(dir=session.folder) as folder:
        words = option_words({"device": "cpu", "data": "synthetic:1024x1x28x28:10", "batch-size": 32, "lr": 0.01,
                              "steps": 4, "test-every": 0, "digest-every": 4, "threads": 1, **options,
                              "out": f"{folder}/run"})
        status, output = session.status_of(session.trainer(*words, ranks=ranks), session.environment | limited(limit))
        if status != 0:
            lines = [line for line in output.splitlines() if line.strip()] or ["no output"]
            session.note(f"{name}, {limit}: {lines[-1]}")
            return f"failed ({status})"
        return records_of(pathlib.Path(folder) / "run", "digest")[-1]["weights"]


def digests(session: Session, result: PartResult) -> None:
    names = session.full(list(CASES), list(CASES)[:1])
    limits = session.full(LIMITS, [LIMITS[0], ""])
    runs = [(name, limit) for name in names for limit in limits]
    with futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 1) * 3 // 4)) as workers:
        found = dict(zip(runs, workers.map(lambda run: digest_of(session, *run), runs)))
    rows, differing = [], 0
    for name in names:
        values = [found[name, limit] for limit in limits]
        same = len(set(values)) == 1 and not values[0].startswith("failed")
        differing += not same
        rows.append([name, *values, "same" if same else "DIFFERS"])
        result.line(", ".join(rows[-1]))
    result.table("Weights after 4 steps on the CPU", ["", *(limit or "all" for limit in limits), ""], rows)
    result.figure("digests_differ", differing)
    if any(found[name, ""].startswith("failed") for name in names):
        raise PartFailed("a training on the CPU failed with all instructions")


def our_speed(session: Session, precision: str, ranks: int, limit: str = "") -> float:
    figures = session.folder / "processor.json"
    steps = session.full(STEPS[precision], 1)
    words = ["--device", "cpu", "--model", session.full("resnet18", "lenet"), "--data",
             f"synthetic:{session.full(4096, 512)}x1x28x28:10", "--batch-size", session.full(BATCH, 8) * ranks,
             "--threads", 1, "--precision", precision, "--lr", 0.01, "--warmup-steps", 2, "--timed-steps", steps,
             "--json", figures]
    session.run(session.trainer("bench", "step", *words, ranks=ranks), session.environment | limited(limit))
    return json.loads(figures.read_text(encoding="utf-8"))["images_per_second"]


def peer_speed(session: Session, precision: str, ranks: int) -> float:
    """PyTorch's, by DistributedDataParallel over gloo if there are several ranks, each on a core of its own."""
    settings = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
                             "MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
                             "MALLOC_TOP_PAD_": str(256 << 20)}  # compare_speed.py has why
    words = [*session.tool("python"), PEERS / "pytorch_step.py", "--device", "cpu", "--model", "resnet18", "--batch",
             BATCH, "--precision", precision, "--warmup-steps", 2, "--timed-steps", STEPS[precision]]
    if ranks == 1:
        output = session.run(words, settings)
    else:
        with tempfile.TemporaryDirectory(dir=session.folder) as folder:
            meeting = f"file://{folder}/meeting?world_size={ranks}&rank="
            others = [session.start([*words, "--init-method", f"{meeting}{rank}"], settings, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for rank in range(1, ranks)]
            try:
                output = session.run([*words, "--init-method", f"{meeting}0"], settings)
            finally:
                for other in others:
                    end_group(other)
                    other.wait()
    figures = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return figures[-1]["images_per_second"] * ranks


def speed(session: Session, result: PartResult, precision: str) -> None:
    rows, problems = [], []

    def measured(name: str, measure: Callable[..., float], *words: object) -> float | None:
        try:
            result.figure(name, measure(session, *words))
            return result.record["figures"][name]
        except PartFailed as error:
            problems.append(f"{name}: {error}")
            return None

    def text(value: float | None) -> str:
        return "-" if value is None else number(value)

    computed = session.full(precision, "fp32")  # which the rehearsing processor has
    for ranks in (1, session.full(RANKS, 2)):
        ours = measured(f"tutti_{ranks}", our_speed, computed, ranks)
        theirs = None if session.rehearses else measured(f"pytorch_{ranks}", peer_speed, computed, ranks)
        if ours and theirs:
            result.figure(f"ratio_{ranks}", ours / theirs)
        rows.append([f"{ranks} ranks", text(ours), text(theirs)])
    figures = result.record["figures"]
    if {f"tutti_{RANKS}", "tutti_1"} <= set(figures):
        result.figure("efficiency", figures[f"tutti_{RANKS}"] / figures["tutti_1"] / RANKS)
    if precision == "bf16":
        for limit in session.full(["AVX2", "AVX512_BF16"], ["AVX2"]):
            values = [measured(f"{limit.lower()}_{one}", our_speed, session.full(one, "fp32"), 1, limit)
                      for one in ("bf16", "fp32")]
            if all(values):
                result.figure(f"{limit.lower()}_bf16_to_fp32", values[0] / values[1])
            rows.append([f"1 rank, {limit}: bf16, fp32", *map(text, values)])
    result.table(f"resnet18 1x28x28, {precision}, batch {BATCH} and one thread a rank, images/s",
                 ["", "tutti", "PyTorch"], rows)
    if problems:
        raise PartFailed("; ".join(problems))
