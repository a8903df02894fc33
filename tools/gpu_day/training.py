"""The parts that train: multiple ranks on one GPU, convergence, and switches that must not change a bit."""

import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import time

from gpu_day.bundle import RECIPE
from gpu_day.session import PartFailed, PartResult, Session, end_group
from peers.tables import number

GRACE_SECONDS = 20  # beyond the deadline, for the job's end
START_SECONDS = 30
HANG = 86  # docs/exit-status.md


def option_words(options: dict[str, object]) -> list:
    """{"batch-size": 64, "share-device": True} as a command line."""
    return [word for name, value in options.items() for word in (f"--{name}", value) if word is not True]


def records_of(folder: pathlib.Path, event: str) -> list[dict]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["event"] == event]


def run_folder(session: Session) -> pathlib.Path:
    return session.folder / "run"


def trainer(session: Session, options: dict[str, object], ranks: int = 1) -> list:
    return session.trainer(*option_words({**options, "out": run_folder(session)}), ranks=ranks)


def train(session: Session, command: list, event: str = "epoch", settings: dict[str, str] | None = None) -> list[dict]:
    """Runs a training command, one of trainer(), with settings in its environment; returns its records of that kind."""
    shutil.rmtree(run_folder(session), ignore_errors=True)
    session.run(command, session.environment | (settings or {}))
    return records_of(run_folder(session), event)


def on_ranks(session: Session, ranks: int) -> dict[str, object]:
    """Options with which `ranks` ranks of one GPU communicate."""
    shared = {"comm": "nccl", "share-device": True, "stall-timeout": 120} if ranks > 1 else {}
    return {**session.processor, **shared}


def on_random_images(session: Session, model: str, batch: int) -> dict[str, object]:
    return {"data": "synthetic:4096x1x28x28:10", "model": model, "batch-size": session.full(batch, 16),
            "test-every": 0, "search-plans": "off"}


def next_losses(session: Session, ranks: int, model: str, exchange: str = "ring") -> list[float]:
    """The losses of the first two steps. The first has equal weights; the second follows one exchange."""
    options = {**on_random_images(session, model, 64), "parts": 4, "exchange": exchange, "lr": 0.01, "momentum": 0,
               "steps": 2, "log-every": 1, "precision": "fp32", **on_ranks(session, ranks)}
    return [record["train_loss"] for record in train(session, trainer(session, options, ranks), "step")]


def final_accuracy(session: Session, ranks: int) -> dict:
    options = {"data": session.fashion_mnist(), "model": "lenet", "lr": 0.05, **on_ranks(session, ranks),
               "search-plans": "off", **session.full({"batch-size": 256, "epochs": 3}, {"batch-size": 64, "steps": 4})}
    return train(session, trainer(session, options, ranks))[-1]


def ranks(session: Session, result: PartResult) -> None:
    rows = []
    for model in session.full(["lenet", "resnet18"], ["lenet"]):
        alone = next_losses(session, 1, model)
        for ranks in (2, 4):
            together = next_losses(session, ranks, model)
            apart = max(abs(a - b) / abs(b) for a, b in zip(together, alone, strict=True))
            rows.append([f"{model}, {ranks} ranks", number(alone[-1]), number(together[-1]), f"{apart:.1e}"])
            result.figure(f"{model}_loss_apart_{ranks}", apart)
    result.table("Losses of the first two steps, fp32, 4 parts", ["", "1 rank", "ranks", "relative, most"], rows)


def accuracies_agree(session: Session, result: PartResult) -> None:
    alone = final_accuracy(session, 1)
    rows = [["1 rank", f"{alone['test_acc']:.4f}", "", number(alone["images_per_second"])]]
    for ranks in (2, 4):
        final = final_accuracy(session, ranks)
        apart = abs(final["test_acc"] - alone["test_acc"])
        rows.append([f"{ranks} ranks", f"{final['test_acc']:.4f}", f"{apart:.4f}",
                     number(final["images_per_second"])])
        result.figure(f"accuracy_apart_{ranks}", apart)
    result.table("lenet after the last epoch", ["", "test acc", "apart", "images/s"], rows)


def processes_of(launcher: int) -> list[int]:
    """The ranks that this mpirun has started, from /proc."""
    children = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has just ended
        if int(fields.rpartition(")")[2].split()[1]) == launcher and "(trainer)" in fields:
            children.append(int(entry.parent.name))
    return sorted(children)


def wait_until(condition, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


def has_line(path: pathlib.Path, text: str) -> bool:
    return path.is_file() and text in path.read_text(encoding="utf-8")


def stopped_rank(session: Session, result: PartResult) -> None:
    """Stops one of two ranks during training. The other one must report it and end the job."""
    deadline = session.full(15, 3)
    folder = run_folder(session)
    shutil.rmtree(folder, ignore_errors=True)
    options = {**on_random_images(session, "lenet", 64), "epochs": 100000, "log-every": 1, **on_ranks(session, 2),
               "stall-timeout": deadline}
    process = session.start(trainer(session, options, ranks=2), stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    stopped: list[int] = []
    try:
        metrics = folder / "metrics.jsonl"
        wait_until(lambda: process.poll() is not None or has_line(metrics, '"step":20,'), START_SECONDS)
        if not has_line(metrics, '"step":20,'):
            raise PartFailed(f"two ranks did not come to their 20th step in {START_SECONDS} s")
        stopped = processes_of(process.pid)[-1:]
        if not stopped:
            raise PartFailed("the launcher's ranks were not found in /proc")
        os.kill(stopped[0], signal.SIGSTOP)
        started = time.monotonic()
        ended = wait_until(lambda: process.poll() is not None, deadline + GRACE_SECONDS)
        seconds = time.monotonic() - started
        result.figure("stopped_rank_seconds", seconds)
        exit_file = folder / "exit.json"
        status = json.loads(exit_file.read_text(encoding="utf-8"))["status"] if exit_file.is_file() else "none left"
        result.table("A rank is stopped (SIGSTOP)", ["what", ""],
                     [["deadline, s", number(deadline)], ["status in exit.json", str(status)],
                      ["the job ended after, s", f"{seconds:.1f}" if ended else "it did not end"]])
        if not ended or status != HANG:
            raise PartFailed(f"the job should have ended with status {HANG}; its status is {status}")
    finally:
        for rank in stopped:
            try:
                os.kill(rank, signal.SIGCONT)
            except ProcessLookupError:
                pass
        end_group(process)
        session.note(process.communicate()[1])


def convergence(session: Session, result: PartResult) -> None:
    """By the recipe in jobs/, which settles: with a constant learning rate the accuracy would swing by 0.03."""
    options = {"config": session.root / "share" / RECIPE.name, "data": session.fashion_mnist(), **session.processor,
               **session.full({}, {"model": "lenet", "batch-size": 64, "steps": 20, "decay-factors": "*/bias=0"})}
    records = train(session, trainer(session, options))
    seconds = statistics.median(record["seconds"] for record in records)
    rows = [[str(record["epoch"]), f"{record['train_loss']:.4f}", f"{record['train_acc']:.4f}",
             f"{record['test_acc']:.4f}", f"{record['seconds']:.3f}", number(record["images_per_second"])]
            for record in records]
    result.table(f"{RECIPE.name} on {pathlib.Path(options['data']).name}",
                 ["epoch", "loss", "train acc", "test acc", "s", "images/s"], rows)
    result.line("test accuracies " + ", ".join(row[3] for row in rows))
    result.figure("test_acc", records[-1]["test_acc"])
    result.figure("seconds_per_epoch", seconds)


def compare_values(session: Session, result: PartResult, option: str, values: list[object]) -> None:
    """The speed of each value of an option, and the weights after some steps, which must be the same."""
    differing = 0
    for model, batch, steps in session.full([("lenet", 64, 1000), ("resnet18", 256, 60)], [("lenet", 16, 4)]):
        rows, digests = [], []
        for value in values:
            common = {"data": f"synthetic:{16 * batch}x1x28x28:10", "model": model, "batch-size": batch, "lr": 0.01,
                      "precision": "bf16", **session.processor, option: value}
            weights = train(session, trainer(session, {**common, "steps": steps // 2, "test-every": 0}))
            digests.append(weights[-1]["digest"])
            figures = session.folder / "step.json"
            bench = option_words({**common, "warmup-steps": steps // 10 + 1, "timed-steps": steps, "json": figures})
            session.run(session.trainer("bench", "step", *bench))
            speed = json.loads(figures.read_text(encoding="utf-8"))["images_per_second"]
            rows.append([f"--{option} {value}", number(speed), digests[-1]])
            result.figure(f"{model}_{value}", speed)
        same = len(set(digests)) == 1
        differing += not same
        result.table(f"{model}, batch {batch}, bf16: weights {'are the same' if same else 'DIFFER'}",
                     ["", "images/s", f"weights after {steps // 2} steps"], rows)
    result.figure("digests_differ", differing)


def in_flight(session: Session, result: PartResult) -> None:
    compare_values(session, result, "in-flight", [0, 1, 2])


def graphs(session: Session, result: PartResult) -> None:
    compare_values(session, result, "record-steps", ["on", "off"])
