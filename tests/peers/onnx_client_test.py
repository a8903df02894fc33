"""The client of exported networks gives the answers of `trainer predict`: for image files of all sizes."""

import csv
import pathlib
import runpy
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
TRAINER = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else \
    TOOLS.parent / "trainer"
sys.dont_write_bytecode = True
sys.path.append(str(TOOLS))

import numpy as np
import torch
from PIL import Image

from exporting import onnx_client

CLASSES = ("bright", "dark", "stripes")
IMAGES = 30


def run(*words):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise AssertionError(f"{words[1]} ended with {done.returncode}: {done.stderr}")


class Client(unittest.TestCase):
    def photos(self, folder, seed):
        """Noise about a level or stripes, so that a network of a few steps is sure of some and not of others."""
        random = np.random.default_rng(seed)
        for number in range(IMAGES):
            kind = CLASSES[number % len(CLASSES)]
            width, height = random.integers(20, 200, 2)
            level = {"bright": 170, "dark": 80}.get(kind, 125)
            pixels = random.normal(level, 40, (height, width, 3)) + random.normal(0, 20, 3)
            if kind == "stripes":
                pixels += 60 * np.sign(np.sin(np.arange(width) / 3))[:, np.newaxis]
            path = folder / kind / f"{number}.{'jpg' if number % 2 else 'png'}"
            path.parent.mkdir(parents=True, exist_ok=True)
            bytes_ = pixels.clip(0, 255).astype(np.uint8)
            if number % 5 == 3 and number % 2:  # turned by its EXIF orientation
                exif = Image.Exif()
                exif[0x0112] = 6
                Image.fromarray(bytes_).save(path, exif=exif)
            elif number % 5 == 2 and number % 2 == 0:  # 16 bits of gray
                Image.fromarray(bytes_[:, :, 0].astype(np.uint16) * 256 + 200).save(path)
            elif number % 5 == 1 and number % 2:
                Image.fromarray(bytes_).convert("CMYK").save(path)
            else:
                Image.fromarray(bytes_).save(path)

    def check(self, *more, converted=False):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            self.photos(root / "train", 1)
            self.photos(root / "new", 2)
            data = root / "train"
            if converted:  # with whole short sides
                data = root / "train.h5"
                run(TRAINER, "data", "convert", root / "train", data, "--image-size", 32)
            run(TRAINER, "--data", data, "--image-size", 32, "--normalize", "0.5/0.25", "--epochs", 4,
                "--batch-size", 10, "--lr", 0.01, "--test-every", 0, "--threads", 1, "--out", root / "run")
            run(sys.executable, TOOLS / "export", root / "run", "--to-onnx", root / "F.onnx", "--to-torch",
                root / "F.pt", "--module", root / "F.py", *more)
            run(TRAINER, "predict", "--checkpoint", root / "run", root / "new", "--csv", root / "F.csv")
            with (root / "F.csv").open(encoding="utf-8", newline="") as lines:
                rows = [*csv.DictReader(lines)]
            self.assertEqual(IMAGES, len(rows))
            answers = onnx_client.classify(str(root / "F.onnx"), [self.file(row) for row in rows])
            for row, (path, answer, chance) in zip(rows, answers):
                self.assertEqual(row["predicted"], answer, path)
                self.assertAlmostEqual(float(row["probability"]), chance, delta=1e-4, msg=path)
            self.assertLess(1, len({row["predicted"] for row in rows}))
            self.check_module(root, rows)

    def check_module(self, root, rows):
        """The module prepares images in the same way."""
        names = runpy.run_path(str(root / "F.py"))
        network = names["Network"]()
        network.load_state_dict(torch.load(root / "F.pt"))
        network.eval()
        for row in rows:
            with torch.no_grad():
                chances = network(names["prepare"](self.file(row))).softmax(1)[0]
            self.assertEqual(row["predicted"], names["CLASSES"][int(chances.argmax())], row)
            self.assertAlmostEqual(float(row["probability"]), float(chances.max()), delta=1e-4, msg=row)

    def file(self, row):
        return row["image"]

    def test_agrees_with_trainer_on_all_images(self):
        self.check()

    def test_agrees_where_the_run_has_seen_whole_short_sides(self):
        self.check(converted=True)

    def test_agrees_where_the_graph_normalises(self):
        self.check("--with-normalize")


if __name__ == "__main__":
    unittest.main()
