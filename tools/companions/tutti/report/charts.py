"""Charts as SVG that scales with the page: lines over epochs, and stacked columns. page.css has the colours;
pointing at a mark or a piece shows its value."""

from __future__ import annotations

import dataclasses
import math
from typing import Callable

from tutti.report.markup import Html, element, joined, short

WIDTH, HEIGHT = 440, 236
LEFT, RIGHT, TOP, FOOT = 52, 12, 10, 38
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - FOOT
X_TICKS, Y_TICKS = 7, 5
SEEN_MARKS = 40  # more would hide the line
MOST_MARKS = 400  # more would only make the page large
LABELLED_COLUMNS = 12
WIDEST_COLUMN = 96


@dataclasses.dataclass
class Axis:
    low: float
    high: float
    ticks: list[float]
    is_logarithmic: bool = False

    def share(self, value: float) -> float:
        """Returns 0 for the low end and 1 for the high end."""
        if self.is_logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear_axis(low: float, high: float, ticks: int = Y_TICKS, whole: bool = False) -> Axis:
    """Its ends and ticks are round numbers, and integers if `whole`."""
    span = max(high - low, 1e-12, 1e-6 * max(abs(low), abs(high)))
    step = max(_round_step(span / ticks), 1 if whole else 0)
    first = math.floor(low / step + 1e-6)
    last = max(first + 1, math.ceil(high / step - 1e-6))
    return Axis(first * step, last * step, [i * step for i in range(first, last + 1)])


def logarithmic_axis(low: float, high: float) -> Axis:
    """`low` is above 0."""
    low, high = low / 1.2, high * 1.2
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    digits = (1, 2, 5) if last - first <= 3 else (1,)
    powers = range(first, last + 1, max(1, (last - first) // Y_TICKS))
    ticks = [digit * 10.0**power for power in powers for digit in digits]
    return Axis(low, high, [tick for tick in ticks if low <= tick <= high], is_logarithmic=True)


def _round_step(least: float) -> float:
    """Returns 1, 2 or 5 times a power of ten, at least `least`."""
    power = 10.0**math.floor(math.log10(least))
    return next((digit * power for digit in (1, 2, 5) if digit * power >= least * (1 - 1e-9)), 10 * power)


@dataclasses.dataclass
class Line:
    name: str
    look: str  # a class of the page's style
    points: list[tuple[float, float]]  # x ascending
    has_marks: bool = True


@dataclasses.dataclass
class LineChart:
    title: str
    unit: str  # of y
    x_name: str
    x_end: float
    lines: list[Line]
    verticals: list[float]  # where the run resumed
    y_axis: Callable[[float, float], Axis]  # of the least and the greatest value
    y_text: Callable[[float], str] = short  # of ticks
    value_text: Callable[[float], str] = short  # of points

    def draw(self) -> Html:
        """Includes title and legend. Without points the figure shows a note."""
        lines = [line for line in self.lines if line.points]
        if not lines:
            return _figure(self.title, self.unit, element("p", "nothing recorded", class_="none"))
        values = [y for line in lines for _, y in line.points]
        y = self.y_axis(min(values), max(values))
        x = linear_axis(0, self.x_end, X_TICKS, whole=True)
        x.low, x.high = 0, self.x_end or 1  # 0: odd records have no steps
        svg = [_y_axis(y, self.y_text), self._x_axis(x)]
        svg += [_line("resumed", _x(x, place), TOP, _x(x, place), TOP + PLOT_HEIGHT) for place in self.verticals]
        legend = []
        spoken = self.title
        for line in lines:
            last = self.value_text(line.points[-1][1])
            svg.append(self._drawn(line, x, y))
            legend.append(_key(line.look, line.name, last if line.has_marks else ""))
            spoken += f"; {line.name} ends at {last}"
        if self.verticals:
            legend.append(_key("resumed", "resumed"))
        return _figure(self.title, self.unit, _legend(legend), _canvas(spoken, svg))

    def _x_axis(self, axis: Axis) -> Html:
        foot = TOP + PLOT_HEIGHT
        svg = [_line("axis", LEFT, foot, WIDTH - RIGHT, foot)]
        for tick in axis.ticks:
            x = _x(axis, tick)
            if x <= WIDTH - RIGHT + 1:
                svg += [_line("axis", x, foot, x, foot + 4), _label(x, foot + 16, "middle", short(tick))]
        return joined([*svg, _label(LEFT + PLOT_WIDTH / 2, HEIGHT - 5, "middle", self.x_name)])

    def _drawn(self, line: Line, x_axis: Axis, y_axis: Axis) -> Html:
        places = [(_x(x_axis, x), _y(y_axis, y)) for x, y in line.points]
        path = "".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(places))
        svg = [element("path", class_=f"line {line.look}", d=path)]
        if line.has_marks and len(places) <= MOST_MARKS:
            look = f"mark{'' if len(places) <= SEEN_MARKS else ' unseen'} {line.look}"
            for (x, y), (at, value) in zip(places, line.points):
                title = f"{self.x_name} {short(at)}: {line.name} {self.value_text(value)}"
                svg.append(element("circle", element("title", title), class_=look, cx=f"{x:.1f}", cy=f"{y:.1f}", r="3"))
        return joined(svg)


@dataclasses.dataclass
class ColumnChart:
    title: str
    unit: str
    x_name: str
    pieces: list[tuple[str, str]]  # name and look, from the foot upwards
    columns: list[tuple[str, list[float]]]  # name and the values of its pieces

    def draw(self) -> Html:
        y = linear_axis(0, max(sum(values) for _, values in self.columns) or 1)
        foot = TOP + PLOT_HEIGHT
        svg = [_y_axis(y, short), *self._names()]
        svg += [self._drawn(place, y) for place in range(len(self.columns))]
        svg.append(_line("axis", LEFT, foot, WIDTH - RIGHT, foot))
        legend = [_key(look, name) for name, look in self.pieces]
        return _figure(self.title, self.unit, _legend(legend), _canvas(self.title, svg))

    def _names(self) -> list[Html]:
        width = PLOT_WIDTH / len(self.columns)
        every = -(-len(self.columns) // LABELLED_COLUMNS)
        names = [_label(LEFT + width * (place + 0.5), TOP + PLOT_HEIGHT + 16, "middle", self.columns[place][0])
                 for place in range(0, len(self.columns), every)]
        return [*names, _label(LEFT + PLOT_WIDTH / 2, HEIGHT - 5, "middle", self.x_name)]

    def _drawn(self, place: int, axis: Axis) -> Html:
        column, values = self.columns[place]
        width = PLOT_WIDTH / len(self.columns)
        gap = max(min(0.18 * width, 8), width - WIDEST_COLUMN) if width > 4 else 0
        svg = []
        below = 0.0
        for (name, look), value in zip(self.pieces, values):
            top = _y(axis, below + value)
            height = _y(axis, below) - top
            below += value
            if height < 0.05:
                continue
            title = f"{self.x_name} {column}: {name} {value:.3g} {self.unit}, {100 * value / sum(values):.0f} %"
            svg.append(element("rect", element("title", title), class_=look, x=f"{LEFT + width * place + gap / 2:.2f}",
                               y=f"{top:.2f}", width=f"{width - gap:.2f}", height=f"{height:.2f}"))
        return joined(svg)


def _x(axis: Axis, value: float) -> float:
    return LEFT + PLOT_WIDTH * axis.share(value)


def _y(axis: Axis, value: float) -> float:
    return TOP + PLOT_HEIGHT * (1 - axis.share(value))


def _line(look: str, x1: float, y1: float, x2: float, y2: float) -> Html:
    return element("line", class_=look, x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}")


def _label(x: float, y: float, look: str, words: str) -> Html:
    return element("text", words, class_=look, x=f"{x:.1f}", y=f"{y:.1f}")


def _y_axis(axis: Axis, text_of: Callable[[float], str]) -> Html:
    return joined([_line("grid", LEFT, y, WIDTH - RIGHT, y) + _label(LEFT - 6, y + 3.5, "end", text_of(tick))
                   for tick, y in ((tick, _y(axis, tick)) for tick in axis.ticks)])


def _canvas(spoken: str, content: list[Html]) -> Html:
    return element("svg", *content, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=spoken)


def _key(look: str, name: str, value: str = "") -> Html:
    return element("span", element("i", class_=f"key {look}"), name, *([" ", element("b", value)] if value else []))


def _legend(keys: list[Html]) -> Html:
    return element("p", *keys, class_="legend")


def _figure(title: str, unit: str, *content: Html) -> Html:
    return element("figure", element("figcaption", element("b", title), " ", element("small", unit)), *content)
