"""Sums over ranks: bus bandwidth and time by size, a line for each algorithm, a panel for each rank count."""

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from plotting.bench_file import BenchFile
from plotting.page import Page, Table
from plotting.scaling import record_tables
from plotting.sheet import Sheet, bytes_text, colour, marker, plural, seconds_text, span

PLACES = {name: place for place, name in enumerate(("ring", "direct", "window", "mpi", "blocking", "exact", "nccl",
                                                    "auto"))}
MOST_COLUMNS = 4


def worlds_of(file: BenchFile) -> list[tuple[int, int]]:
    return sorted({(one["ranks"], one["hosts"]) for one in file.results})


def algorithms_of(file: BenchFile) -> list[str]:
    """The algorithms of the file in a fixed order."""
    return sorted({one["algorithm"] for one in file.results}, key=lambda name: (PLACES.get(name, len(PLACES)), name))


def draw(files: list[BenchFile]) -> Sheet:
    file, = files
    worlds = worlds_of(file)
    columns = min(MOST_COLUMNS, len(worlds))
    rows = -(-len(worlds) // columns)
    sheet = Sheet(2 * rows, columns, (max(7.0, 3.6 * columns), 5.0 * rows), sharex=True)
    for row in range(2):  # all panels of a row share their scale
        for panel in sheet.panels[row::2].flat:
            panel.sharey(sheet.panels[row][0]) if panel is not sheet.panels[row][0] else None
    for place in range(rows * columns):
        panels = [sheet.panels[2 * (place // columns) + kind][place % columns] for kind in range(2)]
        if place < len(worlds):
            draw_world(sheet, panels, file, worlds[place])
            continue
        for panel in panels:
            panel.set_axis_off()
    for row, panel in enumerate(sheet.panels[:, 0]):
        panel.set_ylabel("time of one sum" if row % 2 else "bus bandwidth")
    sheet.finish(*heading(file))
    return sheet


def draw_world(sheet: Sheet, panels: list[Axes], file: BenchFile, world: tuple[int, int]) -> None:
    bandwidth, time = panels
    ranks, hosts = world
    for name in algorithms_of(file):
        points = sorted((one for one in file.results
                         if (one["ranks"], one["hosts"], one["algorithm"]) == (*world, name)),
                        key=lambda one: one["bytes"])
        if points:
            draw_algorithm(sheet, panels, points, name)
    bandwidth.set_title(plural(ranks, "rank") + (f" on {plural(hosts, 'host')}" if hosts > 1 else ""), loc="left")
    time.set_xlabel("size of the message")
    for panel, text in ((bandwidth, lambda value, _: f"{value:g} GB/s"), (time, lambda value, _: seconds_text(value))):
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.xaxis.set_major_locator(LogLocator(base=2, numticks=6))
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: bytes_text(value)))
        panel.yaxis.set_major_formatter(FuncFormatter(text))
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.tick_params(labelbottom=panel is time, axis="x", labelsize=8.5)
        panel.tick_params(labelleft=panel in sheet.panels[:, 0], axis="y")
    draw_choices(sheet, bandwidth, file, ranks)


def draw_algorithm(sheet: Sheet, panels: list[Axes], points: list[dict], name: str) -> None:
    """The line is the median, its band the quartiles; sizes whose sum was wrong are crossed out."""
    place = PLACES.get(name, len(PLACES) + sum(map(ord, name)))
    looks = {"color": colour(place), "linestyle": (0, (1, 1)) if name == "auto" else "-",
             "marker": None if name == "auto" else marker(place), "markersize": 3.5}
    sizes = [one["bytes"] for one in points]
    bus_bytes = [one["bus_gigabytes_per_second"] * one["seconds_median"] for one in points]
    for panel, scale in zip(panels, (lambda size, seconds: size / seconds, lambda _, seconds: seconds)):
        low, middle, high = ([scale(size, one[f"seconds_{key}"]) for size, one in zip(bus_bytes, points)]
                             for key in ("low_quartile", "median", "high_quartile"))
        panel.plot(sizes, middle, **looks)
        panel.fill_between(sizes, low, high, color=looks["color"], alpha=0.15, linewidth=0)
        crossed = {"color": "#C00000", "marker": "x", "markersize": 9, "markeredgewidth": 2, "linestyle": "none"}
        wrong = [(size, value) for size, value, one in zip(sizes, middle, points) if one.get("wrong")]
        if wrong:
            panel.plot(*zip(*wrong), **crossed)
            sheet.explain("the sum was WRONG", Line2D([], [], **crossed))
    sheet.name({"mpi": "mpi (the library's own)", "blocking": "blocking (MPI_Allreduce)",
                "auto": "auto (chosen by size)"}.get(name, name), Line2D([], [], **looks))


def draw_choices(sheet: Sheet, panel: Axes, file: BenchFile, ranks: int) -> None:
    """A strip along the top, coloured by the algorithm that a run takes for that size."""
    sizes = [one["bytes"] for one in file.results]
    start = min(sizes)
    for choice in (one for one in file.content.get("choices", []) if one["ranks"] == ranks):
        end = min(choice["up_to_bytes"] or max(sizes), max(sizes))
        place = PLACES.get(choice["algorithm"], len(PLACES))
        panel.axvspan(start, max(start, end), ymin=0.975, ymax=1, color=colour(place), linewidth=0)
        start = max(start, end)
        sheet.explain("strip on top, in these colours: chosen by training", Patch(color="#BBBBBB"))


def heading(file: BenchFile) -> tuple[str, str]:
    worlds = worlds_of(file)
    sizes = [one["bytes"] for one in file.results]
    facts = [file.content.get("libraries", ""), f"{bytes_text(min(sizes))} to {bytes_text(max(sizes))} of fp32",
             span([hosts for _, hosts in worlds], "host"),
             "median and quartiles; bus bandwidth = bytes / time × 2(P−1)/P",
             file.date]
    return (f"All-reduce over {span([ranks for ranks, _ in worlds], 'rank')}: speed by size of the message",
            "; ".join(fact for fact in facts if fact))


def page(files: list[BenchFile]) -> Page:
    file, = files
    rows = [[str(one["ranks"]), str(one["hosts"]), bytes_text(one["bytes"]), one["algorithm"],
             seconds_text(one["seconds_median"]), seconds_text(one["seconds_low_quartile"]),
             seconds_text(one["seconds_high_quartile"]), f"{one['bus_gigabytes_per_second']:.3f}",
             f"{one['wrong']} wrong" if one.get("wrong") else ""] for one in file.results]
    tables = [Table(f"{file.path.name}: measured", ["ranks", "hosts", "size", "algorithm", "time", "25 %", "75 %",
                                                    "bus GB/s", ""], rows)]
    choices = file.content.get("choices")
    if choices:
        tables.append(Table(f"{file.path.name}: taken by training", ["ranks", "up to", "algorithm"],
                            [[str(one["ranks"]), bytes_text(one["up_to_bytes"]) if one["up_to_bytes"] else "any size",
                              one["algorithm"]] for one in choices]))
    return Page(*heading(file), [*tables, *record_tables(file)])
