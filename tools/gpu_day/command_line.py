"""The command line of tools/gpu-day: tests and measurements that need a GPU, on a machine that has only a GPU.

  tools/gpu-day bundle build/release gpu-bundle   where it was built: writes gpu-bundle.tar.xz
  tools/gpu-day run --bundle gpu-bundle.tar.xz --data DATA --out RESULTS    on the other machine: runs all parts
  tools/gpu-day run --bundle ... speed-lenet ranks                          or only some
  tools/gpu-day exec --bundle ... -- mpirun -np 2 trainer --device cuda     any command in the bundle's environment
  tools/gpu-day status RESULTS...                 in the project: adds results to tools/GPU-STATUS.md

RESULTS gets results.json, gpu-day.log and GPU-STATUS.md; parts run again replace their earlier results. DATA is a
folder with fashion-mnist/ (idx files).
"""

import argparse
import pathlib
import signal
import subprocess
import sys
import tempfile

from gpu_day import bundle, machine, parts, status
from gpu_day.session import Results, Session


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/gpu-day", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    pack = commands.add_parser("bundle", help="pack a build")
    pack.add_argument("build", type=pathlib.Path)
    pack.add_argument("folder", type=pathlib.Path, help="is replaced; the archive is written next to it")
    run = commands.add_parser("run", help="run parts", formatter_class=argparse.RawDescriptionHelpFormatter,
                              epilog="parts:\n" + "\n".join(f"  {one.name:<18} {one.purpose}" for one in parts.PARTS))
    run.add_argument("parts", nargs="*", help="default: all; 'speed' stands for all of speed-*")
    run.add_argument("--data", type=pathlib.Path, help="folder with fashion-mnist/ in it")
    run.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu-day-results"),
                     help="folder of the results; default: %(default)s")
    run.add_argument("--limit", type=float, default=570, help="seconds that one part may take; default: %(default)s")
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
    chosen = parts.choose(options.parts)
    options.out.mkdir(parents=True, exist_ok=True)
    results = Results(options.out / "results.json")
    with Session(options, root) as session:
        for part in chosen:
            parts.run(part, session, results)
    text = status.status_text(results.parts)
    (options.out / "GPU-STATUS.md").write_text(text, encoding="utf-8")
    if not options.rehearse:
        print(f"\n{status.targets_table(results.parts)}\n")
    print(f"results: {options.out}")
    return 0 if all(results.parts[part.name]["outcome"] == "ran" for part in chosen) else 1


def main(words: list[str] | None = None) -> int:
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
            return run_parts(options, root)
        variables, lines = machine.environment(root, bundle.facts_of(root)["needs"]["cuda"])
        for line in lines:
            print(line, file=sys.stderr)
        return subprocess.run(options.words, env=variables, check=False).returncode
