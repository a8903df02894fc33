"""The part that checks the guarantees of the gradient exchanges, over NCCL with ranks that share the GPU."""

from gpu_day.session import PartResult, Session
from gpu_day.training import next_losses, on_random_images, on_ranks, train, trainer
from peers.tables import number

RING = "ring"
# Reduce-scatter has no tree algorithm, and NCCL fails if only trees are allowed.
OTHERS = "ring,pat;allreduce:tree"
EXACT = {  # ranks, NCCL_ALGO, options; a start of 4 ranks that share a GPU takes 6 s
    "lenet": [(1, RING, {"bucket-mib": 16}), (2, RING, {"bucket-mib": 1}), (2, RING, {"shard-optimizer": True}),
              (4, OTHERS, {"bucket-mib": 16})],
    "resnet18": [(1, RING, {"bucket-mib": 16}), (2, OTHERS, {"bucket-mib": 1}), (4, RING, {"shard-optimizer": True})],
}
INEXACT = ("sharded", "central")


def bits_of(session: Session, model: str, ranks: int, algorithm: str, options: dict[str, object]) -> list[tuple]:
    """The digests of the network after each step."""
    common = {**on_random_images(session, model, 128), "parts": 8, "exchange": "exact", "steps": 6, "digest-every": 1,
              **on_ranks(session, ranks), **options}
    records = train(session, trainer(session, common, ranks), "digest", {"NCCL_ALGO": algorithm})
    return [(record["step"], record["weights"], record.get("statistics")) for record in records]


def exact(session: Session, result: PartResult) -> None:
    differing = 0
    for model in session.full(["lenet", "resnet18"], ["lenet"]):
        rows, first = [], None
        for ranks, algorithm, options in EXACT[model]:
            bits = bits_of(session, model, ranks, algorithm, options)
            first = first or bits
            option_text = ", ".join(f"{name} {value}".removesuffix(" True") for name, value in options.items())
            rows.append([f"{ranks}", algorithm, option_text, bits[-1][1], "same" if bits == first else "DIFFERS"])
        result.table(f"{model}, exact, 8 parts: weights after each of 6 steps",
                     ["ranks", "NCCL_ALGO", "options", "the last", "all"], rows)
        differing += any(row[-1] == "DIFFERS" for row in rows)
    result.figure("digests_differ", differing)


def others_stay_near(session: Session, result: PartResult) -> None:
    rows = []
    alone = next_losses(session, 1, "lenet")
    for exchange in INEXACT:
        for ranks in (2, 4):
            together = next_losses(session, ranks, "lenet", exchange)
            apart = max(abs(a - b) / abs(b) for a, b in zip(together, alone, strict=True))
            rows.append([f"{exchange}, {ranks} ranks", number(alone[-1]), number(together[-1]), f"{apart:.1e}"])
            result.figure(f"{exchange}_loss_apart_{ranks}", apart)
    result.table("lenet: losses of the first two steps, fp32, 4 parts", ["", "1 rank", "ranks", "relative, most"],
                 rows)
