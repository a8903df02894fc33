#!/usr/bin/env python3
"""PyTorch's side of jobs/cifar-10-94.toml: the same network and recipe, to compare accuracy and time.

    tools/peers/cifar_recipe.py --data /data/cifar-10 --threads 2            # 10 epochs, then the accuracy
    tools/peers/cifar_recipe.py --data /data/cifar-10 --test 5 --train 1,2,3,4 --seed 2
    tools/peers/cifar_recipe.py --data /data/cifar-10 --precision fp32 --compile --timed-steps 10

Trains on CPUs and prints a JSON object. `seconds` is the time of the training steps, with augmentation, and without
the start, the evaluations and, with --compile, the compilation (the first step, which it runs twice). The network ends
with views of the test images (--views shifts in Tutti); `accuracy_without_views` is that of the plain images.
"""

import argparse
import gzip
import json
import pathlib
import statistics
import time

import peer_python

peer_python.go_on_with_torch()

import numpy as np
import torch
from torch import nn

BATCH = 1024
PEAK_RATE, MOMENTUM, DECAY = 1.5, 0.85, 0.00133
NORM_BIAS_FACTOR = 64  # of the rate; the decay is divided by it
START, PEAK_AT, END = 0.2, 0.23, 0.07  # of the triangular schedule
SMOOTHING = 0.2
SHIFT = 2  # pixels
WHITENED_IMAGES, WHITENING_EPSILON, WHITENING_BIAS_EPOCHS = 5000, 5e-4, 3
LOOKAHEAD_STEPS = 5
CLASSES = 10
RECORD = 1 + 3 * 32 * 32


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with data_batch_N.bin or .bin.gz")
    parser.add_argument("--train", default="1,2,3,4,5", help="training batches; default: %(default)s")
    parser.add_argument("--test", default="test", help="the test batch, or one of the training batches by number")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16", help="bf16: by autocast")
    parser.add_argument("--compile", action="store_true", help="by torch.compile; else eager")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timed-steps", type=int, default=0, help="time N steps, print their median, and end")
    return parser.parse_args()


def read_batches(folder: pathlib.Path, names: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Images as bytes and labels of files such as data_batch_1.bin.gz."""
    records = []
    for name in names:
        path = next(path for path in sorted(folder.iterdir()) if path.name.startswith(f"{name}.bin"))
        open_it = gzip.open if path.suffix == ".gz" else open
        with open_it(path, "rb") as file:
            records.append(np.frombuffer(file.read(), np.uint8).reshape(-1, RECORD))
    rows = torch.from_numpy(np.concatenate(records))
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long()


def test_file(folder: pathlib.Path, test: str) -> str:
    if test != "test":
        return f"data_batch_{test}"
    return next(path.name.partition(".bin")[0] for path in sorted(folder.iterdir()) if path.name.startswith("test"))


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.convolutions = nn.ModuleList(
            [nn.Conv2d(channels, outputs, 3, padding=1, bias=False) for channels in (inputs, outputs)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs, eps=1e-12, momentum=0.4) for _ in range(2)])
        for convolution, norm in zip(self.convolutions, self.norms):
            nn.init.dirac_(convolution.weight.data[:convolution.in_channels])
            norm.weight.requires_grad = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(self.convolutions[0](x), 2)
        x = nn.functional.gelu(self.norms[0](x))
        return nn.functional.gelu(self.norms[1](self.convolutions[1](x)))


class Network(nn.Module):
    def __init__(self, images: torch.Tensor):
        super().__init__()
        self.whiten = nn.Conv2d(3, 24, 2)
        self.whiten.weight.requires_grad = False
        self.whiten.weight.data = whitening_filters(images)
        self.blocks = nn.Sequential(Block(24, 64), Block(64, 256), Block(256, 256))
        self.head = nn.Linear(256, CLASSES, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(nn.functional.gelu(self.whiten(x)))
        return self.head(nn.functional.max_pool2d(x, 3).flatten(1)) / 9


def whitening_filters(images: torch.Tensor) -> torch.Tensor:
    """Eigenvectors of the covariance of 2x2 patches, scaled to unit variance, and their negatives."""
    patches = images.unfold(2, 2, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5).reshape(-1, 12).double()
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / (values + WHITENING_EPSILON).sqrt()).T.flip(0).reshape(12, 3, 2, 2).float()
    return torch.cat([filters, -filters])


class Lookahead:
    """Slow copies of weights and running statistics, to which the fast ones return every few steps."""

    def __init__(self, network: nn.Module):
        self.fast = [tensor for tensor in network.state_dict().values() if tensor.is_floating_point()]
        self.slow = [tensor.clone() for tensor in self.fast]

    def update(self, decay: float) -> None:
        with torch.no_grad():
            torch._foreach_lerp_(self.slow, self.fast, 1 - decay)
            torch._foreach_copy_(self.fast, self.slow)


def shifted(images: torch.Tensor, amounts: torch.Tensor) -> torch.Tensor:
    """Each image shifted by its own amounts, with reflected edges."""
    padded = nn.functional.pad(images, (SHIFT,) * 4, "reflect")
    result = torch.empty_like(images)
    for y in range(2 * SHIFT + 1):
        for x in range(2 * SHIFT + 1):
            chosen = ((amounts[:, 0] == y) & (amounts[:, 1] == x)).nonzero().flatten()
            result[chosen] = padded[chosen, :, y:y + 32, x:x + 32]
    return result


class Run:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        pixels, self.labels = read_batches(options.data, [f"data_batch_{n}" for n in options.train.split(",")])
        test_pixels, self.test_labels = read_batches(options.data, [test_file(options.data, options.test)])
        scaled = pixels.float() / 255
        mean, deviation = (f((0, 2, 3), keepdim=True) for f in (scaled.mean, scaled.std))
        self.images = (scaled - mean) / deviation
        self.test_images = (test_pixels.float() / 255 - mean) / deviation
        self.network = Network(self.images[:WHITENED_IMAGES]).to(memory_format=torch.channels_last)
        self.forward = torch.compile(self.network) if options.compile else self.network
        self.steps_per_epoch = len(self.images) // BATCH
        self.steps = self.steps_per_epoch * options.epochs
        named = list(self.network.named_parameters())
        norm_biases = [weight for name, weight in named if "norms" in name and weight.requires_grad]
        others = [weight for name, weight in named if "norms" not in name and weight.requires_grad]
        self.optimizer = torch.optim.SGD(
            [{"params": norm_biases, "lr": PEAK_RATE * NORM_BIAS_FACTOR, "weight_decay": DECAY / NORM_BIAS_FACTOR},
             {"params": others, "lr": PEAK_RATE, "weight_decay": DECAY}],
            momentum=MOMENTUM, nesterov=True, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda t: np.interp(t, [0, int(PEAK_AT * self.steps), self.steps], [START, 1, END]))
        self.lookahead = Lookahead(self.network)
        self.flips_first = torch.rand(len(self.images)) < 0.5

    def autocast(self) -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16, enabled=self.options.precision == "bf16")

    def compute(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        with self.autocast():
            logits = self.forward(images.contiguous(memory_format=torch.channels_last))
            loss = nn.functional.cross_entropy(logits.float(), labels, label_smoothing=SMOOTHING)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()

    def augmented(self, chosen: torch.Tensor, epoch: int) -> torch.Tensor:
        images = self.images[chosen]
        flips = (self.flips_first[chosen] ^ bool(epoch % 2)).view(-1, 1, 1, 1)
        images = torch.where(flips, images.flip(3), images)
        return shifted(images, torch.randint(0, 2 * SHIFT + 1, (len(chosen), 2)))

    def train(self) -> float:
        """Returns the seconds of all steps."""
        if self.options.compile:
            for requires_grad in (True, False):  # both forms of the network
                self.network.whiten.bias.requires_grad = requires_grad
                self.compute(self.images[:BATCH], self.labels[:BATCH])
        seconds, step = 0.0, 0
        for epoch in range(self.options.epochs):
            started = time.perf_counter()
            self.network.whiten.bias.requires_grad = epoch < WHITENING_BIAS_EPOCHS
            self.network.train()
            order = torch.randperm(len(self.images))
            for batch in range(self.steps_per_epoch):
                chosen = order[batch * BATCH:(batch + 1) * BATCH]
                self.compute(self.augmented(chosen, epoch), self.labels[chosen])
                self.optimizer.step()
                self.schedule.step()
                step += 1
                if step % LOOKAHEAD_STEPS == 0:
                    self.lookahead.update(0.95**LOOKAHEAD_STEPS * (step / self.steps) ** 3)
            seconds += time.perf_counter() - started
        self.lookahead.update(1.0)
        return seconds

    def time_steps(self, count: int) -> list[float]:
        self.network.train()
        seconds = []
        for step in range(count + 2):
            started = time.perf_counter()
            chosen = torch.arange(step * BATCH, (step + 1) * BATCH) % len(self.images)
            self.compute(self.augmented(chosen, 0), self.labels[chosen])
            self.optimizer.step()
            seconds.append(time.perf_counter() - started)
        return seconds[2:]

    def accuracies(self) -> tuple[float, float]:
        """With the views, and without."""
        def of_both_sides(images: torch.Tensor) -> torch.Tensor:
            return (self.network(images).float() + self.network(images.flip(3)).float()) / 2

        self.network.eval()
        correct = [0, 0]
        with torch.no_grad(), self.autocast():
            for images, labels in zip(self.test_images.split(500), self.test_labels.split(500)):
                padded = nn.functional.pad(images, (1,) * 4, "reflect")
                views = (of_both_sides(images) / 2 + of_both_sides(padded[:, :, :32, :32]) / 4
                         + of_both_sides(padded[:, :, 2:, 2:]) / 4)
                for i, logits in enumerate((views, self.network(images))):
                    correct[i] += (logits.argmax(1) == labels).sum().item()
        return correct[0] / len(self.test_labels), correct[1] / len(self.test_labels)


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    run = Run(options)
    facts = {"torch": torch.__version__, "precision": options.precision, "compiled": options.compile,
             "threads": options.threads, "seed": options.seed}
    if options.timed_steps > 0:
        print(json.dumps(facts | {"step_seconds": statistics.median(run.time_steps(options.timed_steps))}))
        return
    seconds = run.train()
    accuracy, plain = run.accuracies()
    print(json.dumps(facts | {"steps": run.steps, "seconds": seconds, "accuracy": accuracy,
                              "accuracy_without_views": plain}))


if __name__ == "__main__":
    main()
