"""Where the time of a step went, at every measured point, as a share of the step that ideal scaling would have."""

from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from plotting.bench_file import BenchFile
from plotting.errors import PlotError
from plotting.page import Page, Table
from plotting.scaling import heading, modes_of, record_tables, series_of
from plotting.sheet import GREY, Sheet, colour, seconds_text

# From useful work, at the bottom, to lost time.
PHASES = {"compute": (0, "compute"), "update": (5, "update of the weights"), "input": (4, "waiting for input"),
          "imbalance": (3, "imbalance: waiting for slower ranks"), "exchange": (1, "exchange not hidden by compute")}


def only_timed(files: list[BenchFile]) -> list[BenchFile]:
    for file in files:
        missing = [one for one in file.results if not one.get("time")]
        if missing or not file.results:
            raise PlotError(f"{file.path} has no times of the phases (\"time\" of each point); measure again "
                            "with this trainer's `bench scaling`")
    return files


def ideal_seconds(point: dict) -> float:
    return point["step_seconds_median"] * point["efficiency"]


def draw(files: list[BenchFile]) -> Sheet:
    modes, series = modes_of(only_timed(files)), series_of(files)
    most = max(len(each.measured(mode)) for each in series for mode in modes)
    width = max(7.0, len(modes) * max(3.6, 0.62 * most + 1.2))
    sheet = Sheet(len(series), len(modes), (width, 0.6 + 2.5 * len(series)), sharey=True)
    for row, each in enumerate(series):
        for column, mode in enumerate(modes):
            name = each.exchange if len(files) == 1 else f"{each.file.path.stem}, {each.exchange}"
            draw_panel(sheet, row, column, each.measured(mode))
            sheet.panels[row][column].set_title(f"{mode.capitalize()}, {name}", loc="left")
    for panel in sheet.panels[-1]:
        panel.set_xlabel("ranks")
    for panel in sheet.panels[:, 0]:
        panel.set_ylabel("share of the ideal step")
    title, details = heading(files)
    sheet.finish(title.replace("Scaling of", "Where the time went:"), details)
    return sheet


def draw_panel(sheet: Sheet, row: int, column: int, points: list[dict]) -> None:
    panel = sheet.panels[row][column]
    panel.grid(visible=False, axis="x")
    floor = [0.0] * len(points)
    for phase, (hue, label) in PHASES.items():
        shares = [one["time"].get(phase, 0) / ideal_seconds(one) for one in points]
        bars = panel.bar(range(len(points)), shares, bottom=floor, width=0.62, color=colour(hue), label=label,
                         edgecolor="white", linewidth=0.5)
        floor = [below + share for below, share in zip(floor, shares)]
        sheet.name(label, bars)
    line = panel.axhline(1, color="black", linewidth=1, linestyle=(0, (1, 1.5)))
    sheet.explain("the ideal step", line)
    if any(one["oversubscribed"] for one in points):
        sheet.explain("* oversubscribed: more ranks than cores", Line2D([], [], linestyle="none"))
    for place, (one, height) in enumerate(zip(points, floor)):
        panel.annotate(seconds_text(one["step_seconds_median"]), (place, height), (0, 2), textcoords="offset points",
                       ha="center", fontsize=7.5, color=GREY,
                       bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85})
    panel.set_xticks(range(len(points)), [tick(one, points) for one in points])
    panel.set_xlim(-0.6, max(2, len(points)) - 0.4)
    panel.set_ylim(0, max([*floor, panel.get_ylim()[1] / 1.12]) * 1.12)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    panel.tick_params(labelleft=column == 0, axis="y")


def tick(point: dict, points: list[dict]) -> str:
    lines = [f"{point['ranks']}" + ("*" if point["oversubscribed"] else "")]
    if any(one["nodes"] > 1 for one in points):
        lines.append(f"{point['nodes']} node" + "s" * (point["nodes"] > 1))
    return "\n".join(lines)


def page(files: list[BenchFile]) -> Page:
    title, details = heading(files)
    result = Page(title.replace("Scaling of", "Where the time went:"), details)
    for file in files:
        rows = [[one["mode"], one["exchange"], str(one["nodes"]), str(one["ranks"]),
                 seconds_text(one["step_seconds_median"]), seconds_text(ideal_seconds(one)),
                 *(seconds_text(one["time"].get(phase, 0)) for phase in PHASES),
                 "oversubscribed" if one["oversubscribed"] else ""] for one in file.results]
        result.tables += [Table(f"{file.path.name}: a step's time",
                                ["mode", "exchange", "nodes", "ranks", "step", "ideal step", *PHASES, ""], rows),
                          *record_tables(file)]
    return result
