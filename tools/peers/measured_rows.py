"""The rows in which tools/peers/measure reports its measurements: figures, required values and stretch goals.

A measurement is rounds of {side: {figure: value}}. A row has one figure of it: ours, and the best of the others',
round by round. Its ratio is checked, or ours alone if it has a unit.
"""

import dataclasses
import textwrap

from compare_speed import Range
from tables import text_table

BEGIN = "<!-- tools/peers/measure writes from here -->"
END = "<!-- to here -->"
MISSING = "-"


@dataclasses.dataclass(frozen=True)
class Row:
    title: str
    measurement: str
    figure: str
    ours: str
    theirs: tuple[str, ...]
    must: float
    stretch: float
    unit: str = ""  # of our figure, if that is checked instead of the ratio
    digits: int = 1
    at_most: bool = False
    their_figure: str = ""  # if it has another name

    def values(self, measurement: dict) -> "Values":
        best = min if self.at_most else max
        rounds = [one for one in measurement["rounds"] if self.ours in one]
        theirs = self.their_figure or self.figure
        ours = [one[self.ours][self.figure] for one in rounds]
        peers = [[one[side][theirs] for side in self.theirs if theirs in one.get(side, ())] for one in rounds]
        pairs = [(mine, best(others)) for mine, others in zip(ours, peers, strict=True) if others]
        checked = ours if self.unit else [mine / peer for mine, peer in pairs]
        return Values(*(Range.of(list(of)) if of else None for of in (ours, [peer for _, peer in pairs], checked)))

    def reaches(self, value: float, wanted: float) -> bool:
        return value <= wanted if self.at_most else value >= wanted

    def result(self, checked: Range | None) -> str:
        if checked is None:
            return "not measured"
        for name, wanted in (("stretch", self.stretch), ("must", self.must)):
            if self.reaches(checked.median, wanted):
                return name
        return "MISSED"


@dataclasses.dataclass(frozen=True)
class Values:
    ours: Range | None
    theirs: Range | None
    checked: Range | None


def _speed(model: str, precision: str, must: float, stretch: float) -> Row:
    return Row(f"{model} {precision}, images/s, vs PyTorch", f"{model}-{precision}", "images_per_second", "tutti",
               ("eager", "compiled"), must, stretch)


def _alone(title: str, measurement: str, figure: str, must: float, stretch: float, unit: str, digits: int = 0) -> Row:
    return Row(title, measurement, figure, "tutti", ("eager", "compiled"), must, stretch, unit, digits,
               unit != "images/s")


def _ranks(model: str, single: tuple[float, float]) -> list[Row]:
    both = (f"ranks-{model}", "images_per_second", "together")
    title = f"2 ranks, {model} fp32, images/s, vs two independent processes"
    return [Row(title, *both, ("apart",), *single),
            Row(f"{title}, as if synchronized after every step", *both, ("apart",), *single,
                their_figure="in_step_images_per_second"),
            Row(f"2 ranks, {model} fp32, images/s, vs PyTorch's DDP with gloo", *both, ("ddp",), 1.3, 1.7)]


ROWS = (
    _speed("resnet18", "fp32", 1.2, 1.6),
    _speed("resnet18", "bf16", 1.2, 1.6),
    _speed("lenet", "fp32", 1.3, 1.8),
    _speed("lenet", "bf16", 1.4, 1.8),
    *_ranks("resnet18", (0.95, 0.98)),
    *_ranks("lenet", (0.85, 0.95)),
    Row("all-reduce of 44.7 MB over 2 ranks, GB/s, vs MPI_Allreduce", "sum", "gigabytes_per_second", "auto",
        ("blocking",), 1.0, 4.0, digits=2),
    _alone("peak memory, resnet18 fp32, MiB", "resnet18-fp32", "peak_resident_mib", 500, 400, "MiB"),
    _alone("peak memory, resnet18 bf16, MiB", "resnet18-bf16", "peak_resident_mib", 400, 300, "MiB"),
    *(_alone(f"start-up to the end of the first step, minus one step, {model} fp32, s", f"{model}-fp32",
             "start_seconds", 0.4, 0.15, "s", 2) for model in ("resnet18", "lenet")),
    *(_alone(f"augmenting 3x32x32 images, {augment}, one core, images/s", f"augment-{augment}", "images_per_second",
             20000, 60000, "images/s") for augment in ("crop-flip", "pad-crop-flip", "resized-crop")),
)


def _cells(row: Row, measurements: dict[str, dict]) -> tuple[Values, list[str]]:
    """Ours, the others' and the ratio, as text."""
    values = row.values(measurements.get(row.measurement, {"rounds": []}))
    ratio = values.checked.text(2) if values.checked and not row.unit else MISSING
    ours = values.ours and (values.ours.text(row.digits) if row.unit else f"{values.ours.median:.{row.digits}f}")
    return values, [ours or MISSING, f"{values.theirs.median:.{row.digits}f}" if values.theirs else MISSING, ratio]


def terminal_table(measurements: dict[str, dict]) -> str:
    head = ["", "Tutti", "peer", "ratio", "must", "stretch", "reached"]
    lines = []
    for row in ROWS:
        values, cells = _cells(row, measurements)
        sign, digits = ("<=", 2 if row.unit == "s" else 0) if row.at_most else (">=", 0 if row.unit else 2)
        lines.append([row.title, *cells, *(f"{sign} {wanted:.{digits}f}" for wanted in (row.must, row.stretch)),
                      row.result(values.checked)])
    return "\n".join([text_table(head, lines), *notes(measurements)])


def notes(measurements: dict[str, dict]) -> list[str]:
    by_text: dict[str, list[str]] = {}
    for name, measurement in measurements.items():
        if measurement.get("note"):
            by_text.setdefault(measurement["note"], []).append(name)
    return [f"{', '.join(names)}: {text}" for text, names in by_text.items()]


def page_section(results: dict) -> str:
    """The figures of docs/measuring.md: the measurements, the machine, and the load of other programs."""
    machine, measurements = results["machine"], results["measurements"]
    counts = [len(one["rounds"]) for one in measurements.values()]
    rounds = " to ".join(map(str, sorted({min(counts), max(counts)})))
    busiest = max(one["cores_used_by_others"] for one in measurements.values())
    disturbed = f" Other programs used up to {busiest:.1f} cores during the measurement." if busiest > 0.2 else ""
    about = (f"Written by `tools/peers/measure` on {results['date']}. Machine: {machine['processor']}, "
             f"{machine['cores']} cores, {machine['memory_gib']} GiB. All runs used batches of 64 images of 1x28x28 "
             f"and one thread per rank. The figures are medians (min-max) of {rounds} paired rounds in rotating "
             f"order. PyTorch's figure is the better of its eager and compiled modes. PyTorch ran with "
             f"channels_last, autocast for bf16, and glibc's malloc set to keep freed memory.{disturbed}")
    lines = [*textwrap.wrap(about, 120), "", *(f"- {text}" for text in results["libraries"].values()), "",
             "| | Tutti | peer | ratio |", "|---|---|---|---|"]
    lines += ["| " + " | ".join([row.title, *_cells(row, measurements)[1]]) + " |" for row in ROWS]
    lines += [""] + [f"{text}." for text in notes(measurements)]
    return "\n".join(lines).rstrip()


def with_section(page: str, section: str) -> str:
    """The page with this text between its two marks. ValueError if they are missing."""
    before, begin, rest = page.partition(BEGIN + "\n")
    _, end, after = rest.partition(END + "\n")
    if not begin or not end:
        raise ValueError(f"no lines '{BEGIN}' and '{END}', between which the figures go")
    return f"{before}{begin}{section}\n{end}{after}"
