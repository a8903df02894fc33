"""The command line of tools/gpu-day: tests and measurements that need a GPU, on a machine that has only a GPU.

  tools/gpu-day bundle build/release gpu-bundle   where it was built: writes gpu-bundle.tar.xz
  tools/gpu-day run --bundle gpu-bundle.tar.xz --data DATA --out RESULTS    on the other machine: runs all parts
  tools/gpu-day run --bundle ... --seconds 240            or those that fit into 240 s, in order of their value
  tools/gpu-day run --bundle ... --seconds 240 --earlier RESULTS            goes on where an earlier call has ended
  tools/gpu-day run --bundle ... speed-lenet ranks                          or only some
  tools/gpu-day exec --bundle ... -- mpirun -np 2 trainer --device cuda     any command in the bundle's environment
  tools/gpu-day status RESULTS...                 in the project: adds results to tools/GPU-STATUS.md

RESULTS gets results.json, GPU-STATUS.md, two logs, plans.txt (cuDNN's plans) and profile.csv; parts run again replace
their earlier results. What is printed is short. DATA is a folder with fashion-mnist/ (idx files).
"""

import argparse
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from gpu_day import bundle, machine, parts, speed, status
from gpu_day.session import Results, Session


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/gpu-day", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    pack = commands.add_parser("bundle", help="pack a build")
    pack.add_argument("build", type=pathlib.Path)
    pack.add_argument("folder", type=pathlib.Path, help="is replaced; the archive is written next to it")
    run = commands.add_parser("run", help="run parts", formatter_class=argparse.RawDescriptionHelpFormatter,
                              epilog="parts, with their seconds on an H200:\n" + "\n".join(
                                  f"  {one.name:<24} {one.seconds:3.0f}  {one.purpose}" for one in parts.PARTS))
    run.add_argument("parts", nargs="*", help="default: all; 'speed' stands for all of speed-*")
    run.add_argument("--data", type=pathlib.Path, help="folder with fashion-mnist/ in it")
    run.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-day-results"),
                     help="folder of the results; default: %(default)s")
    run.add_argument("--limit", type=float, help="seconds that one part may take; default: 75, in a rehearsal 600")
    run.add_argument("--seconds", type=float, help="of the whole call; parts for which too few are left are left out")
    run.add_argument("--earlier", type=pathlib.Path, action="append", default=[],
                     help="results to add to; what has run there with the same bundle does not run again unless named")
    run.add_argument("--rehearse", action="store_true",
                     help="in small, on a simulated GPU; PyTorch is left out unless TUTTI_PYTHON names its Python")
    enter = commands.add_parser("exec", help="run a command in the bundle's environment")
    enter.add_argument("words", nargs="+", metavar="COMMAND")
    for one in (run, enter):
        one.add_argument("--bundle", type=pathlib.Path, required=True, help="the archive, or the folder unpacked of it")
    add = commands.add_parser("status", help="write tools/GPU-STATUS.md")
    add.add_argument("results", nargs="*", type=pathlib.Path, help="folders of results to add")
    return parser.parse_args(words)


def run_parts(options: argparse.Namespace, root: pathlib.Path) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    results = Results(options.out / "results.json")
    for folder in options.earlier:
        status.add_earlier(results, folder)
    chosen = parts.choose(options.parts)
    if options.earlier and not options.parts:
        chosen = parts.left_to_run(chosen, results.parts, bundle.facts_of(root)["commit"])
    with Session(options, root) as session:
        speed.prepare(session, [part.name for part in chosen])
        left_out = parts.run_all(chosen, session, results)
    text = status.status_text(results.parts)
    (options.out / "GPU-STATUS.md").write_text(text, encoding="utf-8")
    if not options.rehearse:
        print(f"\n{status.targets_table(results.parts, only_tried=True)}\n")
    print(f"no time was left for: {', '.join(left_out) or '-'}\nresults: {options.out}")
    run_now = [part.name for part in chosen if part.name not in left_out]
    return 0 if all(results.parts[name]["outcome"] == "ran" for name in run_now) else 1


def main(words: list[str] | None = None) -> int:
    started = time.monotonic()
    options = parse(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # which also stops all child processes
    if options.command == "bundle":
        bundle.make_bundle(options.build, options.folder)
        return 0
    if options.command == "status":
        return status.add_results(options.results)
    with tempfile.TemporaryDirectory(prefix="gpu-day-") as folder:
        rehearses = options.command == "run" and options.rehearse
        root = bundle.unpack(options.bundle, pathlib.Path(folder), rehearses)
        if options.command == "run":
            if options.seconds:
                options.seconds -= time.monotonic() - started
            return run_parts(options, root)
        variables, lines = machine.environment(root, bundle.facts_of(root)["needs"]["cuda"])
        for line in lines:
            print(line, file=sys.stderr)
        return subprocess.run(options.words, env=variables, check=False).returncode
