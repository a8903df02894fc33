"""Learning curves: loss and accuracy in training and test, and speed, over epochs, of one or more runs."""

import pathlib

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from plotting.page import Page, Table
from plotting.sheet import GREY, Sheet, colour, marker, plural, short
from tutti.run_folder import Run

MANY_POINTS = 30  # from here on a line needs no markers
BAND = {"linewidth": 7, "alpha": 0.35, "marker": None, "linestyle": "-"}  # what lies beneath an equal run


def draw(runs: list[Run]) -> Sheet:
    sheet = Sheet(1, 3, (11, 3.1), gridspec_kw={"width_ratios": [1.15, 1.15, 1]})
    loss, accuracy, speed = sheet.panels[0]
    for place, run in enumerate(runs if len(runs) > 1 else []):
        looks = {"marker": marker(place)} | (BAND if is_covered(run, runs[place + 1:]) else {})
        sheet.name(run_label(run), Line2D([], [], color=colour(place), **looks))
    end = max(run.epochs_at(run.last_step) for run in [run for run in runs if run.epochs] or runs)
    in_epochs = any(run.epochs for run in runs)  # before the first epoch has ended, the axis is in steps
    for place, run in enumerate(runs):
        if run.epochs or not in_epochs:
            draw_run(sheet, run, place, alone=len(runs) == 1, covered=is_covered(run, runs[place + 1:]))
    for panel, title, unit in ((loss, "Loss", "mean cross-entropy"), (accuracy, "Accuracy", "share of correct labels"),
                               (speed, "Speed", "images/s")):
        panel.set_title(title, loc="left")
        panel.set_ylabel(unit)
        panel.set_xlabel("epoch" if in_epochs else "step")
        panel.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10], integer=end >= 3))
        panel.set_xlim(0, (end or 1) * 1.02)
        if not panel.has_data():
            panel.text(0.5, 0.5, "no epoch has ended yet", transform=panel.transAxes, ha="center", color=GREY)
    scale_loss(loss)
    speed.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    speed.set_ylim(0, 1.12 * max((epoch["images_per_second"] for run in runs for epoch in run.epochs), default=1))
    sheet.finish(*heading(runs))
    return sheet


def scale_loss(panel: Axes) -> None:
    """Logarithmic if the least loss would otherwise be indistinguishable from 0."""
    values = [value for line in panel.get_lines() if line.get_linestyle() != ":" for value in line.get_ydata()]
    if values and min(values) > 0 and max(values) > 15 * min(values):
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.yaxis.set_minor_formatter(NullFormatter())
    else:
        panel.set_ylim(bottom=0)


def curve(run: Run) -> dict[int, tuple]:
    return {one["step"]: (one.get("train_loss"), one.get("test_loss")) for one in run.epochs}


def is_covered(run: Run, later: list[Run]) -> bool:
    """Whether a run that is drawn later has the same losses, and so would hide this one."""
    return bool(run.epochs) and any(curve(run) == curve(other) for other in later)


def draw_run(sheet: Sheet, run: Run, place: int, alone: bool, covered: bool) -> None:
    """One run has a colour for training and one for test; with multiple runs, each run has its own."""
    loss, accuracy, speed = sheet.panels[0]
    hues = {"train": colour(0), "test": colour(1)} if alone else {"train": colour(place), "test": colour(place)}
    for panel, key in ((loss, "loss"), (accuracy, "acc")):
        for part, dashes in (("train", "-"), ("test", (0, (4, 1.6)))):
            looks = {"marker": ("o" if part == "train" else "s") if alone else marker(place), "linestyle": dashes}
            line = draw_points(panel, run, f"{part}_{key}", color=hues[part], **looks | (BAND if covered else {}))
            if line:
                sheet.explain("train (mean of the epoch)" if part == "train" else "test",
                              line if alone else Line2D([], [], color=GREY, linestyle=dashes))
        # Without a step that was applied, there is no value.
        stretches = [one for one in run.stretches if one[f"train_{key}"] is not None]
        if stretches and not covered:
            thin, = panel.plot([run.epochs_at(one["step"]) for one in stretches],
                               [one[f"train_{key}"] for one in stretches],
                               color=hues["train"], alpha=0.45, linewidth=0.9, zorder=1.5)
            sheet.explain(f"train ({interval_text(run)})" if alone else "train (means over steps)",
                          thin if alone else Line2D([], [], color=GREY, alpha=0.6, linewidth=0.9))
    draw_points(speed, run, "images_per_second", color=hues["train"], marker="o" if alone else marker(place))
    draw_marks(sheet, run, place, GREY if alone else colour(place))


def interval_text(run: Run) -> str:
    every = run.options.get("log-every")
    return f"every {plural(every, 'step')}" if every else "means over steps"


def draw_points(panel: Axes, run: Run, key: str, **looks: object) -> Line2D | None:
    known = [epoch for epoch in run.epochs if epoch.get(key) is not None]
    if not known:
        return None
    if len(known) > MANY_POINTS:
        looks["marker"] = None
    line, = panel.plot([run.epochs_at(epoch["step"]) for epoch in known], [epoch[key] for epoch in known], **looks)
    return line


def draw_marks(sheet: Sheet, run: Run, place: int, hue: str) -> None:
    """Marks resumes in all panels, and checkpoints at the bottom of the last one."""
    for resume in run.resumes:
        for panel in sheet.panels[0]:
            panel.axvline(run.epochs_at(resume.step), color=hue, linestyle=":", linewidth=1.1, zorder=1)
        sheet.explain("resumed", Line2D([], [], color=GREY, linestyle=":", linewidth=1.1))
    foot = sheet.panels[0][2]
    for label, looks, chosen in (
            ("checkpoint", {"marker": "|", "color": hue, "markeredgewidth": 1.5},
             [one for one in run.checkpoints if "failure" not in one]),
            ("checkpoint failed", {"marker": "x", "color": colour(1)},
             [one for one in run.checkpoints if "failure" in one])):
        if chosen:
            foot.plot([run.epochs_at(one["step"]) for one in chosen], [0.02 + 0.03 * place] * len(chosen),
                      linestyle="none", transform=foot.get_xaxis_transform(), clip_on=False, markersize=7, **looks)
            sheet.explain(label, Line2D([], [], linestyle="none", markersize=7, **looks | {"color": GREY}))


def run_label(run: Run) -> str:
    return f"{run.name} ({rank_counts(run) or '1 rank'}{'' if run.epochs else ', no epoch yet'})"


def rank_counts(run: Run) -> str:
    counts = [one["ranks"] for one in run.starts if "ranks" in one]
    return ", then ".join(plural(count, "rank") for before, count in zip([None, *counts], counts) if count != before)


def digests(runs: list[Run]) -> str:
    """The weights' digests after the last epoch, if the runs recorded them."""
    last = {run.name: run.epochs[-1].get("digest") if run.epochs else None for run in runs}
    if None in last.values():
        return ""
    if len(set(last.values())) == 1:
        return f"equal weights at the end: {runs[0].epochs[-1]['digest']}"
    return "weights at the end: " + ", ".join(f"{name} {digest}" for name, digest in last.items())


def heading(runs: list[Run]) -> tuple[str, str]:
    starts = [run.starts[-1] if run.starts else {} for run in runs]

    def fact(key: str) -> str:
        return " and ".join(dict.fromkeys(short(one.get(key, "?")) for one in starts))

    title = f"{fact('model')} trained on {fact('data')}"
    if len(runs) > 1:
        facts = [f"{len(runs)} runs", digests(runs), f"{max(run.changed for run in runs):%Y-%m-%d}"]
        return title, "; ".join(fact for fact in facts if fact)
    run = runs[0]
    facts = [rank_counts(run), f"batch {run.options['batch-size']}" if "batch-size" in run.options else "",
             str(run.options.get("precision", "")), f"exchange {fact('exchange')}" if "exchange" in starts[0] else "",
             "no test set" if run.epochs and all(one.get("test_acc") is None for one in run.epochs) else "",
             run.state(), f"{run.changed:%Y-%m-%d}"]
    return title, "; ".join(fact for fact in facts if fact)


def page(runs: list[Run]) -> Page:
    result = Page(*heading(runs))
    for run in runs:
        result.tables.append(figures_table(run))
    for run in runs:
        result.tables += record_tables(run)
    return result


def text(value: object, form: str = "{}") -> str:
    return "-" if value is None else form.format(value)


def figures_table(run: Run) -> Table:
    rows = [[str(one["epoch"]), str(one["step"]), text(one["train_loss"], "{:.4f}"), text(one["train_acc"], "{:.4f}"),
             text(one.get("test_loss"), "{:.4f}"), text(one.get("test_acc"), "{:.4f}"), f"{one['seconds']:.1f}",
             f"{one['images_per_second']:.0f}", f"{one['lr']:g}", one.get("digest", "-")] for one in run.epochs]
    return Table(f"{run.name}: {run.state()}", ["epoch", "step", "train loss", "train acc", "test loss", "test acc",
                                                "seconds", "images/s", "lr", "weights"], rows)


def record_tables(run: Run) -> list[Table]:
    """The start and each resume, and all options."""
    names = list(dict.fromkeys(key for start in run.starts for key in start if key != "event"))
    steps = ["start", *(f"resumed at step {resume.step}" for resume in run.resumes)]
    rows = [[name.replace("_", " "), *(words(start.get(name)) for start in run.starts)] for name in names]
    tables = [Table(f"{run.name}: what ran", ["", *steps], rows)]
    if run.options:
        rows = [[key, words(value)] for key, value in run.options.items()]
        tables.append(Table(f"{run.name}: options", ["", ""], rows, folded=True))
    return tables


def words(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else text(value)


def place(folders: list[pathlib.Path]) -> tuple[pathlib.Path, str]:
    """The default folder of the files, and their name."""
    return folders[0], "learning" if len(folders) == 1 else f"learning-of-{len(folders)}-runs"
