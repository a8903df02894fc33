#!/usr/bin/env python3
"""Writes JPEG files like photographs: detail at every scale as in nature, edges, and some noise, so that they have the
length of photographs of their size and quality. The default sizes are like those of ImageNet.

FOLDER/classNN/NNNNN.jpg, the same files for the same options.
"""

import argparse
import concurrent.futures
import os
import pathlib

import peer_python

SIZES = "500x375,500x375,500x375,500x375,375x500,375x500,500x333,400x300,640x480,1280x960"
QUALITIES = "75,85,90,90,95"


def photograph(number: int, size: tuple[int, int]):
    import numpy
    from PIL import Image, ImageDraw, ImageFilter
    random = numpy.random.default_rng(number)
    width, height = size
    frequency = numpy.hypot(numpy.fft.fftfreq(height)[:, None], numpy.fft.rfftfreq(width)[None, :])
    frequency[0, 0] = 1
    planes = []
    for _ in range(3):
        noise = numpy.fft.rfft2(random.standard_normal((height, width)))
        plane = numpy.fft.irfft2(noise / frequency ** 1.1, s=(height, width))
        planes.append(plane / plane.std())
    gray, blue, red = planes
    colors = numpy.stack([gray + 0.4 * red, gray, gray + 0.4 * blue], axis=2) * 45 + 120
    picture = Image.fromarray(numpy.clip(colors, 0, 255).astype(numpy.uint8))
    edges = Image.new("L", size, 0)
    draw = ImageDraw.Draw(edges)
    for _ in range(8):
        box = [int(random.integers(0, limit)) for limit in (width, height, width, height)]
        box = [min(box[0], box[2]), min(box[1], box[3]), max(box[0], box[2]) + 8, max(box[1], box[3]) + 8]
        (draw.ellipse if random.random() < 0.5 else draw.rectangle)(box, fill=int(random.integers(0, 256)))
    edges = edges.filter(ImageFilter.GaussianBlur(0.7)).point(lambda value: value // 2)
    tint = Image.new("RGB", size, tuple(int(value) for value in random.integers(0, 256, 3)))
    return Image.composite(tint, picture, edges)


def write(folder: str, numbers: range, sizes: list[tuple[int, int]], qualities: list[int], classes: int) -> None:
    for number in numbers:
        path = pathlib.Path(folder, f"class{number % classes:02d}", f"{number:06d}.jpg")
        if not path.exists():
            partial = path.with_suffix(".part")
            photograph(number, sizes[number % len(sizes)]).save(
                partial, "JPEG", quality=qualities[number // len(sizes) % len(qualities)])
            partial.rename(path)


def write_folder(folder: str, count: int, sizes: str = SIZES, qualities: str = QUALITIES, classes: int = 10) -> None:
    """Writes what is missing, on all cores."""
    each = [tuple(int(side) for side in size.split("x")) for size in sizes.split(",")]
    for label in range(classes):
        pathlib.Path(folder, f"class{label:02d}").mkdir(parents=True, exist_ok=True)
    workers = len(os.sched_getaffinity(0))
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        for done in [pool.submit(write, folder, range(first, min(first + 50, count)), each,
                                 [int(quality) for quality in qualities.split(",")], classes)
                     for first in range(0, count, 50)]:
            done.result()


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--photographs", type=int, default=2000, help="default: %(default)s")
    parser.add_argument("--sizes", default=SIZES, help="in turn; default: %(default)s")
    parser.add_argument("--qualities", default=QUALITIES, help="in turn; default: %(default)s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--classes", type=int, default=10, help="default: %(default)s")
    add_options(parser)
    options = parser.parse_args()
    peer_python.go_on_with("numpy", "PIL")
    write_folder(options.folder, options.photographs, options.sizes, options.qualities, options.classes)


if __name__ == "__main__":
    main()
