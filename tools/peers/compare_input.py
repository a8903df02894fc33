#!/usr/bin/env python3
"""Compares the speed of reading photographs with that of PyTorch's DataLoader, in pairs.

Both decode the same JPEG files, crop them by RandomResizedCrop, flip and normalize, on the same cores: as many readers
as workers. Each round runs the sides one after another, in an order that rotates. PyTorch decodes with Pillow and with
torchvision's decode_jpeg; ratios are computed per round, to the faster of the two. Files are read from the page cache
once each side has read them; --cold drops them from it before each run.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import peer_python
import photographs
from compare_speed import Range, pinned, with_programs

PEER = pathlib.Path(__file__).with_name("pytorch_input.py")
SIDES = ("tutti", "pillow", "tensor")


def command(side: str, readers: int, options: argparse.Namespace, figures: str) -> list[str]:
    numbers = ["--seconds", str(options.seconds)]
    if side != "tutti":
        return [options.python, str(PEER), options.folder, *numbers, "--size", str(options.size), "--batch",
                str(options.batch), "--workers", str(readers), "--decoder", side]
    return [options.trainer, "bench", "input", "--data", options.folder, *numbers, "--image-size", str(options.size),
            "--batch-size", str(options.batch), "--augment", "resized-crop", "--normalize",
            "0.485,0.456,0.406/0.229,0.224,0.225", "--model", "linear", "--json", figures]


def drop_from_cache(folder: str) -> None:
    for path in pathlib.Path(folder).glob("*/*.jpg"):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(side: str, readers: int, options: argparse.Namespace) -> dict:
    if options.cold:
        drop_from_cache(options.folder)
    options.threads = readers  # for pinned()
    with tempfile.TemporaryDirectory() as folder:
        figures = f"{folder}/figures.json"
        result = subprocess.run([*pinned(options), *command(side, readers, options, figures)], check=False, text=True,
                                capture_output=True)
        if result.returncode != 0:
            sys.exit(f"{side} ended with {result.returncode}: {result.stderr.strip()[-2000:]}")
        if side != "tutti":
            return json.loads(result.stdout.splitlines()[-1])
        results = json.loads(pathlib.Path(figures).read_text(encoding="utf-8"))["results"]
        return next(one for one in results if one["what"] == "input" and one["readers"] == readers)


def run_rounds(readers: int, options: argparse.Namespace) -> list[dict[str, float]]:
    rounds = []
    for number in range(options.rounds):
        turn = number % len(SIDES)
        rates = {side: run(side, readers, options)["images_per_second"] for side in SIDES[turn:] + SIDES[:turn]}
        rounds.append(rates)
        print(f"{readers} readers, round {number + 1}: " + ", ".join(f"{side} {rates[side]:.0f}" for side in SIDES) +
              f" images/s, ratio {ratio(rates):.2f}", flush=True)
    return rounds


def ratio(rates: dict[str, float]) -> float:
    return rates["tutti"] / max(rates["pillow"], rates["tensor"])


def report(readers: int, rounds: list[dict[str, float]]) -> None:
    cells = [f"{side} {Range.of([one[side] for one in rounds]).text(0)}" for side in SIDES]
    print(f"{readers} readers, median (min-max) of {len(rounds)} rounds, images/s: {', '.join(cells)}; "
          f"tutti / the faster peer {Range.of([ratio(one) for one in rounds]).text(2)}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="A Python with torch and torchvision: "
                                     + peer_python.remedy(("torch", "torchvision", "numpy")))
    parser.add_argument("folder", help="of photographs; those that are missing are written")
    photographs.add_options(parser)
    parser.add_argument("--size", type=int, default=224, help="of the crops; default: %(default)s")
    parser.add_argument("--batch", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--readers", default=f"1,{len(os.sched_getaffinity(0))}", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=5, help="of each run; default: %(default)s")
    parser.add_argument("--cold", action="store_true", help="read from the disk")
    return with_programs(parser)


def main() -> None:
    options = parse()
    subprocess.run([options.python, photographs.__file__, options.folder, "--photographs", str(options.photographs),
                    "--sizes", options.sizes, "--qualities", options.qualities], check=True)
    counts = sorted({int(count) for count in options.readers.split(",")})
    measured = {readers: run_rounds(readers, options) for readers in counts}
    print()
    for readers, rounds in measured.items():
        report(readers, rounds)
    if options.json:
        results = {"options": vars(options), "rounds": measured}
        pathlib.Path(options.json).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
