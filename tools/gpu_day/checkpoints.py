"""The parts that stop and resume trainings: on the GPU with other ranks, and between the GPU and CPUs."""

import json
import shutil

from gpu_day.session import PartResult, Session
from gpu_day.training import on_random_images, on_ranks, records_of, run_folder, trainer
from peers.tables import number

STOP, END = 6, 12  # steps


def train_to(session: Session, processor: dict[str, object], end: int, ranks: int = 1) -> dict[int, tuple]:
    """Trains, or resumes, to step `end`. Returns loss and weights after each of these steps."""
    session.run(trainer(session, {**processor, "steps": end, "resume": True}, ranks), session.environment)
    losses = {record["step"]: record["train_loss"] for record in records_of(run_folder(session), "step")}
    weights = {record["step"]: record["weights"] for record in records_of(run_folder(session), "digest")}
    return {step: (losses.get(step), weights[step]) for step in weights}


def resumed_run(session: Session, model: str, *parts: tuple) -> tuple:
    """The last loss and weights of one run that is resumed: each part has a processor, its last step and the ranks."""
    shutil.rmtree(run_folder(session), ignore_errors=True)
    batch = {"lenet": 128, "resnet18": 32}[model]
    options = {**on_random_images(session, model, batch), "parts": 4, "lr": 0.01, "log-every": 1, "digest-every": 1,
               "precision": "fp32", "allow-mixed-processors": True}
    for processor, end, ranks in parts:
        after = train_to(session, {**options, **processor}, end, ranks)
    return after[max(after)]


def checkpoints(session: Session, result: PartResult, model: str) -> None:
    gpu, two, cpu = on_ranks(session, 1), on_ranks(session, 2), {"device": "cpu"}
    whole = resumed_run(session, model, (gpu, END, 1))
    again = resumed_run(session, model, (gpu, STOP, 1), (two, END, 2))
    rows = [["GPU, then 2 ranks", again[1], "same" if again[1] == whole[1] else "DIFFERS"]]
    reference = resumed_run(session, model, (gpu, STOP + 1, 1))
    for name, first, then in (("GPU, then CPU", gpu, cpu), ("CPU, then GPU", cpu, gpu)):
        loss = resumed_run(session, model, (first, STOP, 1), (then, STOP + 1, 1))[0]
        apart = abs(loss - reference[0]) / abs(reference[0])
        rows.append([name, number(loss), f"next loss apart {apart:.1e}"])
        result.figure(f"{name.replace(', then ', '_to_').lower()}_loss_apart", apart)
    result.figure("digests_differ", int(again[1] != whole[1]))
    result.table(f"{model}, stopped after {STOP} steps, resumed", ["", "weights or loss", ""], rows)


def stall(session: Session, result: PartResult) -> None:
    measured = session.folder / "checkpoint.json"
    session.run(session.trainer("bench", "checkpoint", "--model", session.full("resnet18", "lenet"), "--folder",
                                session.folder, "--json", measured, *session.processor_words()), session.environment)
    bench = json.loads(measured.read_text(encoding="utf-8"))
    result.figure("stall_of_step", bench["stall_of_step"])
    result.table("Saving", ["", "ratio"], [["training stands still, of a step", number(bench["stall_of_step"])],
                                           ["bandwidth, of a plain write and fsync",
                                            number(bench["bandwidth_of_plain"])]])
