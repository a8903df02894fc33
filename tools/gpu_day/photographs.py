"""resnet50 on JPEG photographs of an encoded data set, which the host decodes while the GPU computes."""

from gpu_day import speed, training
from gpu_day.session import PEERS, PartResult, Session

CLASSES = 200


def encoded_set(session: Session, count: int) -> str:
    """Photographs like ImageNet's; in a rehearsal, which has no Pillow to draw them, generated digits."""
    if session.rehearses:
        return "glyphs"
    folder = session.folder / "photographs"
    session.run([*session.tool("python"), PEERS / "photographs.py", folder, "--photographs", count, "--classes",
                 CLASSES])
    session.run(session.trainer("data", "convert", folder, session.folder / "photographs.h5", "--encoded"))
    return str(session.folder / "photographs.h5")


def train(session: Session, result: PartResult) -> None:
    options = {"data": encoded_set(session, 4000), **session.processor, "model": session.full("resnet50", "lenet"),
               "image-size": session.full(224, 28), "batch-size": session.full(256, 16), "precision": "bf16",
               "augment": session.full("resized-crop,flip", "flip")}
    facts, rows = speed.bench_input(session, training.option_words({**options, "seconds": session.full(1, 0.1)}))
    for name in ("core_images_per_second", "rank_images_per_second", "together_over_compute"):
        result.figure(name, facts[name])
    run = {**options, **session.full({"epochs": 2, "last-batch": "discard"}, {"steps": 4})}
    times = training.train(session, training.trainer(session, run), "time")
    result.figure("data_share", times[-1]["data"] / times[-1]["seconds"])
    result.table("Photographs at 224, resnet50", ["", "readers", "images/s"], rows)
    for row in rows:
        result.line(", ".join(row))
