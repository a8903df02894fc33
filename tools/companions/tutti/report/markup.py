"""Builds HTML and SVG in which plain text is always escaped and every element is closed. Formats numbers as people read
them."""

from __future__ import annotations

import html
import math
import re

NOT_SHOWN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


class Html(str):
    """Text that is already markup."""

    def __add__(self, more: str) -> Html:
        return Html(str(self) + text(more))


def text(content: str) -> Html:
    """Plain text is escaped; control characters show as U+FFFD."""
    return content if isinstance(content, Html) else Html(html.escape(NOT_SHOWN.sub("\ufffd", content)))


def joined(parts: list[Html]) -> Html:
    return Html("".join(text(part) for part in parts))


def opening(name: str, /, **attributes: str) -> Html:
    """An element such as img that has no content and no end tag. `class_` stands for class, and _ in a name for -."""
    keys = [(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items()]
    return Html("<" + name + "".join(f' {key}="{text(value)}"' for key, value in keys) + ">")


def element(name: str, /, *content: str, **attributes: str) -> Html:
    return Html(f"{opening(name, **attributes)}{joined(content)}</{name}>")


def table(head: list[str], rows: list[list[str]]) -> Html:
    """Aligns columns of numbers to the right."""
    looks = ["figure" if all(is_figure(row[column]) for row in rows) else "" for column in range(len(head))]
    names = joined([element("th", name, class_=look) for name, look in zip(head, looks)])
    body = joined([element("tr", *(element("td", cell, class_="figure" if is_figure(cell) else "") for cell in row))
                   for row in rows])
    above = element("thead", element("tr", names)) if any(head) else Html()
    return element("div", element("table", above, element("tbody", body)), class_="wide")


def is_figure(cell: str) -> bool:
    return bool(re.fullmatch(r"[0-9.,\-+e<> %]+", cell))


def section(name: str, title: str, *content: Html) -> Html:
    return element("section", element("h2", title), *content, id=name)


def absence(reason: str) -> Html:
    return element("p", reason, class_="none")


def folded(title: str, content: Html) -> Html:
    return element("details", element("summary", title), content)


def percent(share: float) -> str:
    """Prints 0 % and 100 % only for exactly these shares."""
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    return {"100.00": "> 99.99 %", "0.00": "< 0.01 %"}.get(f"{100 * share:.2f}", f"{100 * share:.2f} %")


def decimal(value: float | None, digits: int = 4) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def seconds(value: float) -> str:
    if value < 1e-6:
        return "0 ms"
    if value < 0.0995:
        return f"{1000 * value:.3g} ms"
    if value < 60:
        return f"{value:.{2 if value < 10 else 1}f} s"
    whole = math.floor(value + 0.5)
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def count(value: float) -> str:
    return f"{math.floor(value + 0.5):,}"


def size(value: float) -> str:
    if value < 2**20:
        return f"{value / 2**10:.1f} KiB"
    return f"{value / 2**20:.1f} MiB" if value < 2**30 else f"{value / 2**30:.1f} GiB"


def short(value: float) -> str:
    """Prints at most six digits."""
    return f"{0 if abs(value) < 1e-12 else value:.6g}"
