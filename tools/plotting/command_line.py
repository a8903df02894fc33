"""The command line of tools/plot: figures of trainings and of measurements.

  tools/plot run runs/a                       learning curves: runs/a/learning.png, .svg and .html
  tools/plot run runs/a --follow              updates the page every few seconds, until the run ends
  tools/plot run runs/a runs/b --out .        several runs in one figure
  tools/plot scaling scaling.json             speed-up and efficiency, of what `trainer bench scaling --json` wrote
  tools/plot time scaling.json                where the time of each of its steps went
  tools/plot allreduce allreduce.json         bandwidth and time of sums, of `trainer bench allreduce --json`

The page is one file that opens without server or network. Figures for a README:

  tools/plot run runs/a --formats png --dpi 72 --out tools/plots
"""

import argparse
import os
import pathlib
import sys
import time
from typing import TextIO

from plotting import allreduce, bench_file, learning, scaling, time_shares
from plotting.errors import PlotError
from plotting.page import Page
from plotting.sheet import Sheet, plural
from tutti import run_folder
from tutti.program import Failure

PROGRAM = "tutti-plot" if pathlib.Path(sys.argv[0]).name == "tutti-plot" else "tools/plot"
FORMATS = ("png", "svg", "html")
BENCHES = {"scaling": scaling, "time": time_shares, "allreduce": allreduce}


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=(__doc__ or "").replace("tools/plot ", PROGRAM + " "),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="learning curves")
    run.add_argument("inputs", nargs="+", type=pathlib.Path, metavar="RUN_FOLDER", help="what a training had as --out")
    run.add_argument("--follow", action="store_true", help="redraw while the run trains; waits for its start")
    run.add_argument("--every", type=positive, default=3, metavar="SECONDS", help="with --follow; default: %(default)s")
    for name, count in (("scaling", "+"), ("time", "+"), ("allreduce", 1)):
        bench = commands.add_parser(name, help=(BENCHES[name].__doc__ or "").split(":")[0].rstrip(".").lower())
        bench.add_argument("inputs", nargs=count, type=pathlib.Path, metavar="FILE.json")
    for one in commands.choices.values():
        one.add_argument("--out", type=pathlib.Path, help="folder for the files; default: that of the (first) input")
        one.add_argument("--formats", type=formats, default=list(FORMATS), help="of png,svg,html; default: all")
        one.add_argument("--dpi", type=positive, default=144, help="of the PNG; default: %(default)s")
    return parser.parse_args(words)


def positive(word: str) -> float:
    value = float(word)
    if not 0 < value < 10000:
        raise ValueError(word)
    return value


def formats(words: str) -> list[str]:
    chosen = words.split(",")
    if not set(chosen) <= set(FORMATS):
        raise argparse.ArgumentTypeError(f"'{words}' is no list of {', '.join(FORMATS)}")
    return chosen


def put(path: pathlib.Path, content: bytes) -> None:
    """Writes atomically, since a browser may be reading the file."""
    target = path.resolve()  # keeps symbolic links
    whole = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            path.write_bytes(content)  # a device or a pipe
            return
        whole.write_bytes(content)
        whole.replace(target)
    except OSError as error:
        raise PlotError(f"{path}: {error.strerror}; choose a folder that can be written with --out") from error


def write(options: argparse.Namespace, stem: pathlib.Path, sheet: Sheet, page: Page, reload: float | None) -> list[str]:
    """Returns the written paths. The page contains the drawing as SVG."""
    content = {form: sheet.render(form, options.dpi) for form in FORMATS[:2]
               if form in options.formats or (form == "svg" and "html" in options.formats)}
    if "html" in options.formats:
        content["html"] = page.markup(content["svg"].decode("utf-8"), reload).encode("utf-8")
    sheet.close()
    for form in options.formats:
        put(stem.parent / f"{stem.name}.{form}", content[form])
    return [f"{stem}.{form}" for form in options.formats]


def plot_runs(options: argparse.Namespace) -> list[run_folder.Run]:
    runs = [run_folder.read(folder) for folder in options.inputs]
    for run in runs:
        damaged = run.damaged[:-1] if run.is_cut_off else run.damaged
        if damaged:
            lines = plural(len(damaged), "damaged line")
            line = f"{run.folder}/metrics.jsonl: skipped {lines}, the first is line {damaged[0]}"
            report(options, [line], sys.stderr)
    folder, name = learning.place(options.inputs)
    reload = options.every if options.follow and any(run.under_way for run in runs) else None
    report(options, write(options, (options.out or folder) / name, learning.draw(runs), learning.page(runs), reload))
    return runs


def report(options: argparse.Namespace, lines: list[str], stream: TextIO | None = None) -> None:
    """Prints each line only once."""
    printed = options.__dict__.setdefault("printed", set())
    for line in lines:
        if line not in printed:
            print(line, file=stream, flush=True)
            printed.add(line)


def follow(options: argparse.Namespace) -> None:
    """Draws until no run holds its lock, and only if the records have changed."""
    seen: object = None
    while True:
        try:
            runs = [run_folder.read(folder) for folder in options.inputs]
        except Failure as error:
            if any((folder / "metrics.jsonl").exists() and (folder / "metrics.jsonl").stat().st_size > 0
                   for folder in options.inputs):
                raise
            if seen is None:
                print(f"waiting for the run to begin ({error})", file=sys.stderr, flush=True)
                seen = ()
            time.sleep(options.every)
            continue
        now = [(run.under_way, run.starts, run.epochs, run.stretches, run.checkpoints) for run in runs]
        if now != seen:
            plot_runs(options)
            seen = now
        if not any(run.under_way for run in runs):
            print("\n".join(f"{run.name}: {run.state()}" for run in runs))
            return
        time.sleep(options.every)


def plot_bench(options: argparse.Namespace) -> None:
    kind = BENCHES[options.command]
    files = [bench_file.read(path, "allreduce" if options.command == "allreduce" else "scaling")
             for path in options.inputs]
    first = options.inputs[0]
    name = first.stem if first.stem == options.command else f"{first.stem}-{options.command}"
    report(options, write(options, (options.out or first.parent) / name, kind.draw(files), kind.page(files), None))


def main(words: list[str] | None = None) -> int:
    options = parse(words)
    try:
        if options.command != "run":
            plot_bench(options)
        elif options.follow:
            follow(options)
        else:
            plot_runs(options)
    except (Failure, PlotError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
