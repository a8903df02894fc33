"""One HTML file that needs no server, network or script: a drawing, its figures as tables, and the runs."""

import dataclasses
import html
import re

LOOKS = """body{font:15px/1.45 system-ui,"DejaVu Sans",sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}
h2{font-size:1rem;margin:1.6rem 0 .4rem}
figure{margin:0;overflow-x:auto}svg{max-width:100%;height:auto}div{overflow-x:auto}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .7rem .2rem 0;text-align:right;border-bottom:1px solid #e4e4e4;vertical-align:top}
th:first-child,td:first-child,td.words{text-align:left}td.words{overflow-wrap:anywhere}
summary{margin-top:1.6rem;font-weight:bold;cursor:pointer}"""
NUMBER = re.compile(r"-|[-+]?[\d.,]+(e[-+]?\d+)?( ?(%|s|ms|µs|[KMG]?i?B))?")


@dataclasses.dataclass
class Table:
    title: str
    header: list[str]
    rows: list[list[str]]
    folded: bool = False  # shown on a click

    def markup(self) -> str:
        def cell(text: str, kind: str) -> str:
            looks = "" if kind == "th" or NUMBER.fullmatch(text) else ' class="words"'
            return f"<{kind}{looks}>{html.escape(text)}</{kind}>"

        lines = ["".join(cell(text, "th") for text in self.header)]
        lines += ["".join(cell(text, "td") for text in row) for row in self.rows]
        table = "<div><table>\n" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "\n</table></div>"
        title = html.escape(self.title)
        if self.folded:
            return f"<details><summary>{title}</summary>{table}</details>"
        return f"<h2>{title}</h2>\n{table}"


@dataclasses.dataclass
class Page:
    title: str
    details: str
    tables: list[Table] = dataclasses.field(default_factory=list)

    def markup(self, svg: str, reload_seconds: float | None = None) -> str:
        """With reload_seconds the browser reloads the file after that time."""
        reload = f'<meta http-equiv="refresh" content="{reload_seconds:g}">\n' if reload_seconds else ""
        drawing = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg"):], flags=re.DOTALL)
        name = html.escape(self.title, quote=True)
        tables = "\n".join(table.markup() for table in self.tables)
        return (f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n{reload}<title>{name}</title>\n'
                f"<style>{LOOKS}</style>\n</head>\n<body>\n<h1>{name}</h1>\n<p>{html.escape(self.details)}</p>\n"
                f'<figure role="img" aria-label="{name}">{drawing}</figure>\n{tables}\n</body>\n</html>\n')
