"""Reads files of `trainer bench allreduce|scaling --json FILE`, and names the fields of others that are missing."""

import dataclasses
import datetime
import json
import pathlib

from plotting.errors import PlotError

NEEDED = {
    "scaling": ("mode", "exchange", "nodes", "ranks", "batch", "step_seconds_median", "step_seconds_low_quartile",
                "step_seconds_high_quartile", "images_per_second", "efficiency", "oversubscribed"),
    "allreduce": ("ranks", "hosts", "bytes", "algorithm", "seconds_median", "seconds_low_quartile",
                  "seconds_high_quartile", "bus_gigabytes_per_second"),
}
FORECAST = ("mode", "exchange", "nodes", "ranks", "step_seconds", "efficiency", "efficiency_low", "efficiency_high")
MODES = ("strong", "weak")


@dataclasses.dataclass(frozen=True)
class BenchFile:
    path: pathlib.Path
    date: str
    content: dict

    @property
    def results(self) -> list[dict]:
        return self.content["results"]

    @property
    def forecast(self) -> list[dict]:
        return (self.content.get("forecast") or {}).get("points") or []

    def stops_paying(self, mode: str, exchange: str) -> int | None:
        """The number of ranks from which another node is forecast to be useless."""
        known = (self.content.get("forecast") or {}).get("stops_paying") or []
        return next((one["ranks"] for one in known if (one["mode"], one["exchange"]) == (mode, exchange)), None)


def read(path: pathlib.Path, bench: str) -> BenchFile:
    remedy = f"give what `trainer bench {bench} --json FILE` wrote"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        changed = path.stat().st_mtime
    except OSError as error:
        raise PlotError(f"{path}: {error.strerror}; {remedy}") from error
    except ValueError as error:
        raise PlotError(f"{path} is no JSON ({error}); {remedy}, whole") from error
    if not isinstance(content, dict) or content.get("bench") != bench:
        kind = content.get("bench") if isinstance(content, dict) else None
        raise PlotError(f"{path} holds " + (f"a bench {kind}" if kind else "no bench") + f"; {remedy}")
    date = content.get("date") or datetime.datetime.fromtimestamp(changed).strftime("%Y-%m-%d")
    file = BenchFile(path, date, content | {"results": content.get("results") or []})
    check(path, file.results, NEEDED[bench])
    check(path, file.forecast, FORECAST)
    if not file.results and not file.forecast:
        raise PlotError(f"{path} holds no result: was the measurement stopped? Measure again")
    return file


def check(path: pathlib.Path, points: list[dict], needed: tuple[str, ...]) -> None:
    for number, point in enumerate(points, 1):
        missing = [key for key in needed if point.get(key) is None]
        if missing:
            raise PlotError(f"{path}: point {number} lacks {', '.join(missing)}; measure again with this trainer")
