"""Trains a small network with the options of a recipe here and in PyTorch, and compares the weights."""

import csv
import importlib.util
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
TRAINER = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else \
    TOOLS.parent / "trainer"
sys.dont_write_bytecode = True

import numpy as np
import torch
from torch.optim import swa_utils

SAMPLES, BATCH, STEPS, SIDE, CLASSES = 96, 16, 12, 8, 4  # two epochs
MODEL = """
name = "small"
layer = [
  {name = "stem", type = "conv2d", channels = 6, kernel = 3, padding = 1},
  {name = "norm1", type = "batch-norm", relu = true},
  {name = "conv", type = "conv2d", channels = 8, kernel = 3},
  {name = "norm2", type = "batch-norm", relu = true},
  {name = "pool", type = "global-average-pool"},
  {name = "head", type = "linear", units = "classes"},
]
"""
OPTIONS = ("--nesterov", "--momentum", 0.85, "--weight-decay", 0.02, "--schedule", "linear", "--warmup-epochs", 0.5,
           "--warmup-lr", 0.01, "--min-lr", 0.004, "--lr", 0.05)


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise AssertionError(f"{words} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def rate(step):
    """The learning rate of the options above, as a factor of their --lr."""
    return 0.2 + 0.8 * (step + 1) / 3 if step < 3 else 0.08 + 0.92 * (STEPS - step) / (STEPS - 3)


class Recipe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        random = np.random.default_rng(3)
        cls.pixels = random.integers(0, 256, (SAMPLES, SIDE, SIDE), dtype=np.uint8)
        cls.labels = random.integers(0, CLASSES, SAMPLES, dtype=np.uint8)
        data = cls.root / "data"
        data.mkdir()
        for kind, number, values in (("images-idx3", 2051, cls.pixels), ("labels-idx1", 2049, cls.labels)):
            head = struct.pack(f">{1 + values.ndim}i", number, *values.shape)
            (data / f"train-{kind}-ubyte").write_bytes(head + values.tobytes())
        (cls.root / "small.toml").write_text(MODEL, encoding="utf-8")
        # A step at a rate of 0, so that the run and PyTorch start from the same weights and statistics.
        cls.start = cls.train("start", "--steps", 1, "--lr", 0, "--warmup-epochs", 0)

    @classmethod
    def train(cls, name, *options):
        run(TRAINER, "--data", cls.root / "data", "--model", cls.root / "small.toml", "--batch-size", BATCH,
            "--shuffle", "none", "--epochs", STEPS * BATCH // SAMPLES, "--threads", 1, "--out", cls.root / name,
            *options)
        return cls.root / name

    def network(self, of, *weights):
        """The network of a run, as a PyTorch module with its weights."""
        state, source = self.root / "state.pt", self.root / "network.py"
        run(sys.executable, TOOLS / "export", of, "--to-torch", state, "--module", source, *weights)
        spec = importlib.util.spec_from_file_location("network", source)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        network = module.Network()
        network.load_state_dict(torch.load(state))
        return network

    def images(self, first=0, count=SAMPLES):
        return torch.from_numpy(self.pixels[first:first + count, None]).float() / 255

    def train_with_pytorch(self, network, optimizer, after_step=lambda step: None, frozen=()):
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        for step in range(STEPS):
            network.train()
            for layer in frozen:
                layer.eval()
            first = step * BATCH % SAMPLES
            labels = torch.from_numpy(self.labels[first:first + BATCH]).long()
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(self.images(first, BATCH)), labels).backward()
            optimizer.step()
            schedule.step()
            after_step(step)

    def layers(self, network, name):
        return [layer for found, layer in network.named_modules() if found == name]

    def assert_equal(self, found, expected):
        expected = {name: value for name, value in expected.state_dict().items() if "num_batches" not in name}
        found = {name: value for name, value in found.state_dict().items() if "num_batches" not in name}
        self.assertEqual(found.keys(), expected.keys())
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=2e-4, atol=2e-6, msg=lambda text: f"{name}: {text}")

    def test_factors_and_frozen_layers_are_parameter_groups_and_layers_without_gradients(self):
        ours = self.train("groups", "--init-from", self.start, *OPTIONS, "--freeze", "norm1", "--lr-factors",
                          "norm2/shift=8,head=2,stem@1=0", "--decay-factors", "norm2/shift=0.125")
        network = self.network(self.start)
        (stem,), (frozen,) = self.layers(network, "stem"), self.layers(network, "norm1")
        (norm,), (head,) = self.layers(network, "norm2"), self.layers(network, "head")
        frozen.requires_grad_(False)
        special = {*stem.parameters(), norm.bias, *head.parameters()}
        others = [weight for weight in network.parameters() if weight.requires_grad and weight not in special]
        optimizer = torch.optim.SGD([{"params": others}, {"params": [norm.bias], "lr": 0.4, "weight_decay": 0.0025},
                                     {"params": head.parameters(), "lr": 0.1}, {"params": stem.parameters()}],
                                    lr=0.05, momentum=0.85, nesterov=True, weight_decay=0.02)

        def after_step(step):
            if step == STEPS // 2 - 1:
                stem.requires_grad_(False)

        self.train_with_pytorch(network, optimizer, after_step, [frozen])
        self.assert_equal(self.network(ours), network)

    def test_the_average_is_that_of_an_averaged_model_with_buffers(self):
        ours = self.train("averaged", "--init-from", self.start, *OPTIONS, "--ema", 0.8)
        network = self.network(self.start)
        average = swa_utils.AveragedModel(network, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.8), use_buffers=True)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.85, nesterov=True, weight_decay=0.02)
        self.train_with_pytorch(network, optimizer, lambda step: average.update_parameters(network))
        self.assert_equal(self.network(ours, "--weights", "last"), network)
        self.assert_equal(self.network(ours), average.module)

    def test_lookahead_continues_from_its_slow_weights(self):
        ours = self.train("lookahead", "--init-from", self.start, *OPTIONS, "--ema", 0.95, "--lookahead", 5)
        network = self.network(self.start)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.85, nesterov=True, weight_decay=0.02)
        slow = {}

        def after_step(step):
            if (step + 1) % 5 != 0:
                return
            decay = 0.95**5 * ((step + 1) / STEPS)**3 if slow else 0
            with torch.no_grad():
                for name, value in network.state_dict().items():
                    if value.is_floating_point():
                        slow[name] = torch.lerp(slow.get(name, value), value, 1 - decay)
                        value.copy_(slow[name])

        self.train_with_pytorch(network, optimizer, after_step)
        self.assert_equal(self.network(ours, "--weights", "last"), network)
        network.load_state_dict(slow, strict=False)
        self.assert_equal(self.network(ours), network)

    def test_views_are_shifted_and_mirrored_images(self):
        network = self.network(self.start).eval()

        def mirrored(images):
            return (network(images) + network(images.flip(-1))) / 2

        images = self.images()
        padded = torch.nn.functional.pad(images, (1,) * 4, "reflect")
        with torch.no_grad():
            moved = (mirrored(padded[:, :, :SIDE, :SIDE]) + mirrored(padded[:, :, 2:, 2:])) / 2
            expected = {"none": network(images), "flip": mirrored(images), "shifts": (mirrored(images) + moved) / 2}
        for views, logits in expected.items():
            table = self.root / "predictions.csv"
            run(TRAINER, "predict", "--checkpoint", self.start, "--on", "train", "--views", views, "--probabilities",
                "--csv", table)
            with table.open(encoding="utf-8", newline="") as lines:
                header, *rows = csv.reader(lines)
            columns = [number for number, name in enumerate(header) if name.startswith("p_")]
            found = torch.tensor([[float(row[column]) for column in columns] for row in rows])
            torch.testing.assert_close(found, logits.softmax(1), rtol=0, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
