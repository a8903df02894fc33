"""Speed-up and efficiency over ranks: measured points with quartiles, the ideal, and the forecast with its band."""

import dataclasses
import json

from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from plotting.bench_file import MODES, BenchFile
from plotting.page import Page, Table
from plotting.sheet import GREY, Sheet, colour, log2_ranks, marker, seconds_text, short, span

TITLES = {"strong": "Strong scaling: one batch shared", "weak": "Weak scaling: a batch for every rank"}


@dataclasses.dataclass(frozen=True)
class Series:
    file: BenchFile
    exchange: str

    def measured(self, mode: str) -> list[dict]:
        return sorted((one for one in self.file.results if (one["mode"], one["exchange"]) == (mode, self.exchange)),
                      key=lambda one: (one["ranks"], one["nodes"]))

    def forecast(self, mode: str) -> list[dict]:
        return sorted((one for one in self.file.forecast if (one["mode"], one["exchange"]) == (mode, self.exchange)),
                      key=lambda one: one["ranks"])


def series_of(files: list[BenchFile]) -> list[Series]:
    return [Series(file, exchange) for file in files
            for exchange in dict.fromkeys(one["exchange"] for one in file.results + file.forecast)]


def modes_of(files: list[BenchFile]) -> list[str]:
    seen = {one["mode"] for file in files for one in file.results + file.forecast}
    return [mode for mode in MODES if mode in seen]


def draw(files: list[BenchFile]) -> Sheet:
    modes = modes_of(files)
    sheet = Sheet(2, len(modes), (5.5 * max(1.3, len(modes)), 6.2), sharex="col",
                  gridspec_kw={"height_ratios": [1.3, 1]})
    for column, mode in enumerate(modes):
        draw_mode(sheet, column, mode, series_of(files), multiple_files=len(files) > 1)
    sheet.finish(*heading(files))
    return sheet


def draw_mode(sheet: Sheet, column: int, mode: str, series: list[Series], multiple_files: bool) -> None:
    speed_up, efficiency = sheet.panels[0][column], sheet.panels[1][column]
    counts = sorted({one["ranks"] for each in series for one in each.measured(mode) + each.forecast(mode)})
    ideal, = speed_up.plot([1, counts[-1]], [1, counts[-1]], color=GREY, linewidth=1, linestyle=(0, (1, 1.5)), zorder=1)
    efficiency.axhline(1, color=GREY, linewidth=1, linestyle=(0, (1, 1.5)), zorder=1)
    for place, each in enumerate(series):
        label = f"{each.file.path.stem}: {each.exchange}" if multiple_files else each.exchange
        draw_measured(sheet, column, each.measured(mode), place, label)
        draw_forecast(sheet, column, each, mode, place)
    sheet.explain("ideal", ideal)
    speed_up.set_title(TITLES[mode], loc="left")
    speed_up.set_yscale("log", base=2)
    speed_up.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    low, high = speed_up.get_ylim()
    speed_up.set_ylim(min(low, 0.7), max(high, 1.5))
    log2_ranks(speed_up, counts)
    if column > 0:
        efficiency.sharey(sheet.panels[1][0])
    lines = [max(line.get_ydata(), default=0) for panel in sheet.panels[1][:column + 1] for line in panel.get_lines()]
    efficiency.set_ylim(0, max(1.08, 1.05 * max(lines)))  # a wider band would flatten everything else
    efficiency.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    efficiency.set_xlabel("ranks")
    if column == 0:
        speed_up.set_ylabel("speed-up (images/s over one rank's)")
        efficiency.set_ylabel("efficiency (speed-up / ranks)")


def draw_measured(sheet: Sheet, column: int, points: list[dict], place: int, label: str) -> None:
    """A line joins the points with the fewest nodes for their rank count. Others are single marks."""
    joined = list({one["ranks"]: one for one in reversed(points)}.values())[::-1]
    for panel, of_ranks in ((sheet.panels[0][column], True), (sheet.panels[1][column], False)):
        def value(one: dict, key: str) -> float:
            """The efficiency with this step time."""
            share = one["efficiency"] * one["step_seconds_median"] / one[key]
            return share * one["ranks"] if of_ranks else share

        panel.plot([one["ranks"] for one in joined], [value(one, "step_seconds_median") for one in joined],
                   color=colour(place))
        for one in points:
            middle = value(one, "step_seconds_median")
            bars = [[middle - value(one, "step_seconds_high_quartile")],
                    [value(one, "step_seconds_low_quartile") - middle]]
            panel.errorbar(one["ranks"], middle, yerr=[[max(0, bars[0][0])], [max(0, bars[1][0])]], capsize=2.5,
                           elinewidth=1, color=colour(place), marker=marker(place),
                           markerfacecolor="white" if one["oversubscribed"] else colour(place))
    if points:
        sheet.name(label, Line2D([], [], color=colour(place), marker=marker(place)))
    if any(one["oversubscribed"] for one in points):
        sheet.explain("oversubscribed: more ranks than cores",
                      Line2D([], [], color=GREY, marker="o", markerfacecolor="white", linestyle="none"))


def draw_forecast(sheet: Sheet, column: int, series: Series, mode: str, place: int) -> None:
    points = series.forecast(mode)
    ranks = [one["ranks"] for one in points]
    for row, panel in enumerate((sheet.panels[0][column], sheet.panels[1][column])):
        low, middle, high = ([one[key] * (one["ranks"] if row == 0 else 1) for one in points]
                             for key in ("efficiency_low", "efficiency", "efficiency_high"))
        if len(points) == 1:
            panel.errorbar(ranks, middle, yerr=[[middle[0] - low[0]], [high[0] - middle[0]]], color=colour(place),
                           marker="_", markersize=9, elinewidth=4, alpha=0.5)
        elif points:
            panel.fill_between(ranks, low, high, color=colour(place), alpha=0.15, linewidth=0)
            panel.plot(ranks, middle, color=colour(place), linestyle=(0, (4, 1.6)), linewidth=1.3)
        end = series.file.stops_paying(mode, series.exchange)
        if end in ranks:
            panel.plot(end, middle[ranks.index(end)], color=colour(place), marker="|", markersize=14, markeredgewidth=2)
            sheet.explain("forecast: another node stops paying",
                          Line2D([], [], color=GREY, marker="|", markersize=11, markeredgewidth=2, linestyle="none"))
    if points:
        sheet.explain("forecast", Line2D([], [], color=GREY, linestyle=(0, (4, 1.6)), linewidth=1.3))
        sheet.explain("forecast: band of error", Patch(color=GREY, alpha=0.2, linewidth=0))


def heading(files: list[BenchFile]) -> tuple[str, str]:
    def fact(key: str) -> str:
        return ", ".join(dict.fromkeys(short(file.content[key]) for file in files if file.content.get(key)))

    forecast_of = (files[0].content.get("forecast") or {}).get("inputs") or {}
    model = fact("model") or forecast_of.get("model") or "a network"
    title = f"Scaling of {model}" + (f" on {fact('data')}" if fact("data") else "")
    results = [one for file in files for one in file.results]
    facts = [fact("precision")]
    for mode in MODES:
        batches = [one["batch"] // (one["ranks"] if mode == "weak" else 1) for one in results if one["mode"] == mode]
        if batches:
            facts.append(f"batch {span(batches)}" + (" a rank (weak)" if mode == "weak" else " in all (strong)"))
    if results:
        facts.append(f"measured on {span([one['ranks'] for one in results], 'rank')}"
                     + f" of {span([one['nodes'] for one in results], 'node')}")
        rounds = [file.content["rounds"] for file in files if file.content.get("rounds")]
        facts.append("median and quartiles of steps" + (f" in {span(rounds, 'round')}" if rounds else ""))
    if any(file.content.get("paced") for file in files):
        facts.append("compute slept through, so that only exchanges are real")
    return title, "; ".join(fact for fact in [*facts, max(file.date for file in files)] if fact)


def page(files: list[BenchFile]) -> Page:
    result = Page(*heading(files))
    for file in files:
        result.tables += [points_table(file), *forecast_tables(file), *record_tables(file)]
    return result


def points_table(file: BenchFile) -> Table:
    rows = [[one["mode"], one["exchange"], str(one["nodes"]), str(one["ranks"]), str(one["batch"]),
             seconds_text(one["step_seconds_median"]), seconds_text(one["step_seconds_low_quartile"]),
             seconds_text(one["step_seconds_high_quartile"]), f"{one['images_per_second']:.0f}",
             f"{one['efficiency']:.3f}", "oversubscribed" if one["oversubscribed"] else ""] for one in file.results]
    return Table(f"{file.path.name}: measured", ["mode", "exchange", "nodes", "ranks", "batch", "step", "25 %", "75 %",
                                                 "images/s", "efficiency", ""], rows)


def forecast_tables(file: BenchFile) -> list[Table]:
    if not file.forecast:
        return []
    rows = [[one["mode"], one["exchange"], str(one["nodes"]), str(one["ranks"]),
             seconds_text(one["step_seconds"]), f"{one['efficiency']:.3f}",
             f"{one['efficiency_low']:.3f}", f"{one['efficiency_high']:.3f}",
             "another node stops paying" if one["ranks"] == file.stops_paying(one["mode"], one["exchange"]) else ""]
            for one in file.forecast]
    inputs = [[key, json.dumps(value)] for key, value in (file.content["forecast"].get("inputs") or {}).items()]
    return [Table(f"{file.path.name}: forecast", ["mode", "exchange", "nodes", "ranks", "step", "efficiency",
                                                  "at least", "at most", ""], rows),
            Table(f"{file.path.name}: what the forecast rests on", ["", ""], inputs, folded=True)]


def record_tables(file: BenchFile) -> list[Table]:
    """All facts of the measurement in the file."""
    rows = [[key, value if isinstance(value, str) else json.dumps(value)] for key, value in file.content.items()
            if key not in ("bench", "results", "forecast", "choices")]
    return [Table(f"{file.path.name}: what ran", ["", ""], [*rows, ["date", file.date]] if "date" not in file.content
                  else rows)]
