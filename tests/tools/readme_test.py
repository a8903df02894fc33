"""Runs the commands of the documentation as a reader would type them, and checks its links.

    readme_test.py --trainer BUILD/trainer --mpiexec MPIEXEC [--whole]

Commands are in blocks of kind sh, one per line. They run file by file and in order, in a folder that looks like a
checkout after the build, with a home that contains the data sets that they name. The pages of docs share one such
folder, in which getting-started.md runs first. Without --whole, trainings use little data and benchmarks few small
messages. Commands that need another machine or a separate build are listed with the test that runs them instead.
"""

import argparse
import gzip
import os
import pathlib
import random
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIRST_PAGE = ROOT / "docs/getting-started.md"
PAGES = [FIRST_PAGE, *sorted(set((ROOT / "docs").glob("*.md")) - {FIRST_PAGE})]
# Each group of files shares a folder.
GROUPS = [["README.md"], ["jobs/README.md"], ["tools/README.md"], ["tests/README.md"],
          [str(page.relative_to(ROOT)) for page in PAGES]]

# By the beginning of a command, the file under test that runs it.
ELSEWHERE = {
    "tools/demo": "tests/tools/scripts_test.py",
    "tools/test": ".ci/run",
    "TUTTI_MAX_CPU_ISA=": ".ci/run",
    "tools/setup": ".ci/run",
    "cmake --preset release": ".ci/run",
    "cmake --install": "tests/consumer/CMakeLists.txt",
    "cmake --preset package": "tests/consumer/package_test.py",
    "mpirun -np 1 ./trainer --device cuda": "tests/standin/CMakeLists.txt",
    "tools/dev": ".ci/run",
    "tools/fuzz": ".ci/run",
    "tools/rehearse": "tests/tools/CMakeLists.txt",
    "tools/gpu-day": "tests/tools/gpu_day_test.py",
    "tools/cluster-test": "tests/tools/CMakeLists.txt",
    "tools/peers/": "tests/tools/measure_test.py",
    "tools/plot ": "tests/tools/plot_test.py",
    "tools/tutorials": "tests/tools/tutorials_test.py",
    "tools/export": "tests/tools/export_test.py",
    "python3 tools/exporting/onnx_client.py": "tests/tools/onnx_client_test.py",
    "./trainer data fetch": "tests/companions/data_fetch_test.py",
    "sbatch": "tools/cluster-test",
    "TUTTI_OUT=": "tools/cluster-test",
    "srun": "tools/cluster-test",
    "jobs/chain": "tools/cluster-test",
    "./trainer forecast": "tests/companions/forecast_test.py",  # a busy machine may have it refused
}
BENCHES = "allreduce|checkpoint|exchange|input|scaling|step"
LITTLE_DATA = "synthetic:512x1x28x28:10"


def commands_of(text: str) -> list[str]:
    """The lines of all blocks of kind sh, joined where they go on, without comments."""
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
             for line in block.replace("\\\n", " ").splitlines()]
    return [command for line in lines if (command := re.sub(r"(^|\s+)#\s.*", "", line).strip())]


def elsewhere(command: str) -> str | None:
    return next((where for beginning, where in ELSEWHERE.items() if command.startswith(beginning)), None)


def shortened(command: str, whole: bool) -> str:
    """Shortens commands that train or measure large networks and, unless --whole is given, data and messages, too."""
    def short(segment: str) -> str:
        trains = re.search(r"trainer( train| sweep)?( -(?!-help|-completion)|$)", segment)
        if "bench allreduce" in segment:
            return f"{segment} --max-bytes 65536 --repeats 3" + ("" if whole else " --ranks 2 --min-bytes 16384")
        if re.search(rf"trainer bench ({BENCHES})", segment):
            if not whole:
                segment = segment.replace("resnet18", f"mlp --data {LITTLE_DATA}")
            steps = "--rounds 1" if "bench checkpoint" in segment else "--warmup-steps 1 --timed-steps 2"
            return f"{segment} --batch-size 16 {steps}"
        if "trainer replay" in segment and not whole:
            return re.sub("--to [0-9]+", "--to 6", segment)
        if trains and not whole and not re.search("--data|--resume", segment):
            segment = re.sub("(--digest-every|--steps) [0-9]+", r"\1 6", segment) + f" --data {LITTLE_DATA}"
        if "trainer sweep" in segment:
            return re.sub(r" --steps \d+", "", segment) + " --steps 6"
        is_large = trains and re.search("resnet|photos.toml", segment)
        return f"{segment} --steps 2" if is_large and "--steps" not in segment else segment

    return " && ".join(short(segment) for segment in command.split(" && "))


def anchors_of(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    anchors: dict[str, int] = {}
    for heading in re.findall(r"^#+ +(.+?) *$", without_code_blocks(text), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = anchors.get(anchor, -1) + 1
        anchors[anchor] = number
        if number > 0:
            anchors[f"{anchor}-{number}"] = 0
    return set(anchors)


def without_code_blocks(text: str) -> str:
    return re.sub(r"^(```.*?^```$|    [^\n]*$)", "", text, flags=re.MULTILINE | re.DOTALL)


def links_of(text: str) -> list[str]:
    """The targets of a page's links and images, except those to other sites."""
    prose = re.sub(r"`[^`\n]*`", "", without_code_blocks(text))
    targets = re.findall(r"\]\(<?([^)\s>]+)", prose) + re.findall(r"^\[[^]]+\]: +(\S+)", prose, re.MULTILINE)
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def broken_links(root: pathlib.Path) -> list[str]:
    """Relative links of all Markdown files below `root` whose file or heading does not exist."""
    broken = []
    for path in sorted(root.rglob("*.md")):
        if set(path.relative_to(root).parts) & {".git", "build", "runs", "node_modules"}:
            continue
        for link in links_of(path.read_text(encoding="utf-8")):
            target, _, anchor = link.partition("#")
            file = path.parent / target if target else path
            is_missing = not file.exists()
            if is_missing or anchor and anchor not in anchors_of(file.read_text(encoding="utf-8")):
                broken.append(f"{path.relative_to(root)}: {link}: no such {'file' if is_missing else 'heading'}")
    return broken


def check_the_link_check() -> None:
    """On files with known links."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "docs").mkdir()
        (root / "docs/a.md").write_text("# exit.json: `x`\n## Two\n## Two\n```sh\n# No\n```\n", encoding="utf-8")
        (root / "b.md").write_text("# Top\n[1](docs/a.md) [2](docs/a.md#exitjson-x) [3](docs/a.md#two-1) [4](#top)\n"
                                   "[5](https://example.org/x) `[6](c.md)`\n\n    [7](c.md)\n", encoding="utf-8")
        assert broken_links(root) == [], broken_links(root)
        (root / "docs/c.md").write_text("![1](b.png) [2](../b.md#two)\n[3](a.md#no) [4](#x)\n", encoding="utf-8")
        found = [text.split(": ")[1:] for text in broken_links(root)]
        assert found == [["b.png", "no such file"], ["../b.md#two", "no such heading"],
                         ["a.md#no", "no such heading"], ["#x", "no such heading"]], found


def idx(magic: int, shape: list[int], values: bytes) -> bytes:
    return gzip.compress(struct.pack(f">{1 + len(shape)}I", magic, *shape) + values)


def png(pixels: bytes, width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + pixels[y * width * 3:(y + 1) * width * 3] for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def make_data(folder: pathlib.Path) -> None:
    """Makes a data set of idx files, and photographs in the home folder."""
    source = random.Random(1)
    clothes = folder / "data/fashion-mnist"
    clothes.mkdir(parents=True)
    for name, samples in (("train", 600), ("t10k", 200)):
        (clothes / f"{name}-images-idx3-ubyte.gz").write_bytes(
            idx(0x803, [samples, 28, 28], source.randbytes(samples * 784)))
        (clothes / f"{name}-labels-idx1-ubyte.gz").write_bytes(
            idx(0x801, [samples], bytes(i % 10 for i in range(samples))))
    for name in ("cats", "dogs"):
        photos = folder / "home/photos" / name
        photos.mkdir(parents=True)
        for number in range(40):
            (photos / f"{number}.png").write_bytes(png(source.randbytes(80 * 72 * 3), 80, 72))


def make_checkout(folder: pathlib.Path, options: argparse.Namespace) -> dict[str, str]:
    """Makes the links that a reader has, and returns the environment."""
    for path in ROOT.iterdir():
        if path.name not in (".git", "build", "runs", "trainer"):
            (folder / path.name).symlink_to(path)
    (folder / "trainer").symlink_to(options.trainer)
    programs = folder / "home/programs"
    programs.mkdir(parents=True)
    mpirun = programs / "mpirun"  # no link: MPICH's launcher looks for its parts in the folder of its name
    mpirun.write_text(f'#!/bin/sh\nexec {shlex.quote(options.mpiexec)} "$@"\n', encoding="utf-8")
    mpirun.chmod(0o755)
    make_data(folder)
    return os.environ | {"HOME": str(folder / "home"), "PATH": f"{programs}:{os.environ['PATH']}",
                         "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                         "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
                         "OMPI_MCA_pml": "ob1",
                         "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def run(name: str, folder: pathlib.Path, environment: dict[str, str], whole: bool) -> int:
    """Runs one file's commands; returns how many failed."""
    failed = 0
    for command in commands_of((ROOT / name).read_text(encoding="utf-8")):
        where = elsewhere(command)
        if where is not None:
            assert (ROOT / where).is_file(), f"{where} runs {command} according to this table, but does not exist"
            print(f"{name}: {command}: {where}", flush=True)
            continue
        started = time.monotonic()
        result = subprocess.run(["bash", "-c", shortened(command, whole)], cwd=folder, env=environment, text=True,
                                timeout=300, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        print(f"{name}: {command}: {result.returncode}, {time.monotonic() - started:.1f} s", flush=True)
        if result.returncode != 0:
            failed += 1
            print(f"{result.stdout[-2000:]}\n{result.stderr[-2000:]}", flush=True)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--mpiexec", required=True)
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    check_the_link_check()
    broken = broken_links(ROOT)
    print(*broken, sep="\n", flush=True)
    failed = 0
    for files in GROUPS:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            environment = make_checkout(root, options)
            failed += sum(run(name, root, environment, options.whole) for name in files)
    sys.exit(f"{failed} commands failed, {len(broken)} links are broken" if failed or broken else 0)


if __name__ == "__main__":
    main()
