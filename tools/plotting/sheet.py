"""A figure with a title of the measurement, panels, and a legend below them that covers no data."""

import io
import pathlib
import textwrap
from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot, ticker
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from PIL import Image

# Okabe and Ito's colours, which colour-blind people can distinguish, and together with the markers also in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#666666"

STYLE = {
    "font.family": "DejaVu Sans", "font.size": 9.5, "axes.titlesize": 10, "axes.titleweight": "bold",
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": GREY, "axes.axisbelow": True,
    "axes.grid": True, "grid.color": "#E4E4E4", "grid.linewidth": 0.7, "xtick.color": "#333333",
    "ytick.color": "#333333", "lines.linewidth": 1.7, "lines.markersize": 5, "legend.frameon": False,
    "figure.facecolor": "white", "svg.hashsalt": "tutti", "axes.formatter.useoffset": False,
}


def colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def marker(place: int) -> str:
    return MARKERS[(place + place // len(MARKERS)) % len(MARKERS)]  # pairs of colour and marker repeat late


class Sheet:
    def __init__(self, rows: int, columns: int, size: tuple[float, float], **grid: object) -> None:
        """The size is in inches, of the panels only."""
        matplotlib.rcParams.update(STYLE)
        self._size = size
        self.figure, self.panels = pyplot.subplots(rows, columns, figsize=size, squeeze=False, **grid)
        self._names: dict[str, Artist] = {}
        self._keys: dict[str, Artist] = {}

    def name(self, label: str, artist: Artist) -> None:
        """Adds an entry to the legend for a measurement, once for each label, in the order of the calls."""
        self._names.setdefault(label, artist)

    def explain(self, label: str, artist: Artist) -> None:
        """Adds an entry after those, which explains the drawing."""
        self._keys.setdefault(label, artist)

    @property
    def labels(self) -> list[str]:
        return [*self._names, *self._keys]

    def finish(self, title: str, details: str) -> None:
        """Places title, panels and legend. The figure grows by the size of title and legend."""
        width, height = self._size
        heading = textwrap.wrap(title, int(width * 9.2), break_on_hyphens=False)
        below = textwrap.wrap(details, int(width * 14), break_on_hyphens=False)
        under = 0.16 + 0.2 * len(heading)
        top = under + 0.155 * len(below) + 0.1
        legend, rows = self._place_legend()
        bottom = 0.1 + rows * 0.2 if legend else 0.05
        total = height + top + bottom
        self.figure.set_size_inches(width, total)
        self.figure.text(0.12 / width, 1 - 0.12 / total, "\n".join(heading), va="top", fontsize=12, weight="bold",
                         linespacing=1.15)
        self.figure.text(0.12 / width, 1 - under / total, "\n".join(below), va="top", fontsize=9,
                         color=GREY, linespacing=1.15)
        self.figure.set_layout_engine("constrained", rect=(0, bottom / total, 1, height / total))
        if legend:
            legend.set_bbox_to_anchor((0.5, 0.04 / total), transform=self.figure.transFigure)

    def _place_legend(self) -> tuple[Artist | None, int]:
        """Places the legend in the smallest number of rows."""
        entries = self._names | self._keys
        if not entries:
            return None, 0
        for columns in range(len(entries), 0, -1):
            legend = self.figure.legend(entries.values(), entries.keys(), loc="lower center", ncols=columns,
                                        fontsize=9, handlelength=2.4, columnspacing=1.6, labelspacing=0.35,
                                        borderaxespad=0)
            if columns == 1 or legend.get_window_extent().width <= self.figure.bbox.width * 0.97:
                break
            legend.remove()
        return legend, -(-len(entries) // columns)

    def render(self, form: str, dots_per_inch: int) -> bytes:
        """Gives the same bytes for the same figures. PNG has 256 colours, for a third of the size."""
        file = io.BytesIO()
        if form == "svg":
            self.figure.savefig(file, format=form, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
            return file.getvalue()
        self.figure.savefig(file, format=form, dpi=dots_per_inch)
        small = io.BytesIO()
        Image.open(file).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(small, form, optimize=True)
        return small.getvalue()

    def close(self) -> None:
        pyplot.close(self.figure)


def log2_ranks(panel: Axes, counts: Sequence[int]) -> None:
    """Sets ticks at powers of two over all counts, or at the counts if there are only a few."""
    panel.set_xscale("log", base=2)
    most = max(counts)
    ticks = [1 << power for power in range(most.bit_length() + 1) if min(counts) <= 1 << power <= most]
    if len(set(counts)) <= 6:
        ticks = sorted(set(counts))
    panel.set_xticks(ticks)
    panel.set_xticks([], minor=True)
    panel.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    panel.set_xlim(min(counts) / 1.25, most * 1.25)


def bytes_text(value: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} GiB"


def seconds_text(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value * 1e6:.4g} µs"


def short(name: object) -> str:
    """Returns the last part of a path, and any other text unchanged."""
    return pathlib.PurePath(name).name if isinstance(name, str) and "/" in name else str(name)


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def span(values: Sequence[int], noun: str = "") -> str:
    text = f"{min(values)}" if min(values) == max(values) else f"{min(values)} to {max(values)}"
    return f"{text} {noun}{'s' * (text != '1')}" if noun else text
