#!/usr/bin/env python3
"""Compares losses, gradients and running statistics with PyTorch's on the same weights, batch by batch.

PyTorch trains a network for some steps; each step starts from PyTorch's weights on both sides. They go through HDF5 to
tests/peers/one_step, which computes the same step. Gradients are compared tensor by tensor, as |g - g'| / |g'|, with
PyTorch's in fp32. A figure beyond its limit passes if PyTorch's own error is at least two thirds of it: its fp32 from
its float64, or, when we compute in bf16, its bf16 (autocast) from its fp32. Ends with 1 if a figure is outside.

ReLU's gradient jumps at 0: a single activation whose sign depends on rounding changes a gradient by a few 1e-3. So
before each batch the biases and shifts before the ReLUs are moved by some 1e-4 until no activation is that close to 0.
Likewise a batch is drawn again if rounding could decide which value of a max-pool's window is the greatest.
"""

import argparse
import copy
import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile
from unittest import mock

import peer_python

peer_python.go_on_with_torch()

import h5py
import numpy as np
import torch
from torch import nn

import reference_nets
from reference_nets import NETWORKS, make_network, named_tensors

CLASSES = 10
ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Case:
    network: str
    samples: int
    shape: tuple[int, int, int]
    precision: str = "fp32"

    def __str__(self) -> str:
        return f"{self.network} {self.precision}, batches of {self.samples}x{'x'.join(map(str, self.shape))}"


CASES = [
    Case("lenet", 32, (1, 28, 28)),
    Case("resnet18", 16, (1, 28, 28)),
    Case("resnet18", 16, (3, 28, 28)),
    Case("resnet50", 8, (3, 64, 64)),
    Case("cifar-net", 4, (3, 32, 32)),
    Case("convnext-bn", 16, (3, 32, 32)),
    Case("lenet", 32, (1, 28, 28), "bf16"),
    Case("resnet18", 16, (1, 28, 28), "bf16"),
    Case("resnet50", 8, (3, 64, 64), "bf16"),
]


@dataclasses.dataclass
class Step:
    """The results of one step on one batch; the statistics are the running ones after it, used by the evaluation."""

    loss: float
    evaluation: float
    gradients: dict[str, np.ndarray]
    statistics: dict[str, np.ndarray]


@dataclasses.dataclass
class Distance:
    """The relative differences of two steps."""

    loss: float
    gradient: float  # of the worst tensor
    statistics: float  # of the worst tensor
    evaluation: float
    all_gradients: float  # as one vector
    worst: str


PEER_ALLOWANCE = 1.5
KINK_MARGIN = 1e-4  # of the activations' root mean square, around ReLU's 0
TIE_MARGIN = 3e-6  # likewise, between the two greatest of a window
CHECKED = ("loss", "gradient", "all_gradients", "statistics", "evaluation")
LIMITS = {
    "fp32": Distance(loss=1e-4, gradient=1e-3, statistics=1e-4, evaluation=1e-4, all_gradients=1e-3, worst=""),
    "bf16": Distance(loss=2e-2, gradient=2e-2, statistics=2e-2, evaluation=2e-2, all_gradients=2e-2, worst=""),
}


def arrays(tensors) -> dict[str, np.ndarray]:
    return {name: tensor.detach().to(torch.float64).numpy() for name, tensor in tensors}


def trained(network: nn.Module):
    return ((name, weight) for name, weight in named_tensors(network) if weight.requires_grad)


def pytorch_step(network: nn.Module, images: torch.Tensor, labels: torch.Tensor, autocast: bool = False) -> Step:
    """Computes a step, whose gradients and running statistics stay in the network."""
    images = images.to(next(network.parameters()).dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        network.train()
        network.zero_grad()
        loss = nn.functional.cross_entropy(network(images), labels)
    loss.backward()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        network.eval()
        evaluation = nn.functional.cross_entropy(network(images), labels)
    gradients = arrays((name, weight.grad) for name, weight in trained(network))
    return Step(loss.item(), evaluation.item(), gradients, arrays(named_tensors(network, statistics=True)))


def tutti_step(program: str, case: Case, network: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> Step:
    with tempfile.TemporaryDirectory() as folder:
        given, got = f"{folder}/batch.h5", f"{folder}/step.h5"
        with h5py.File(given, "w") as file:
            file["model"], file["precision"], file["classes"] = model_text(case), case.precision, np.int32(CLASSES)
            file["images"], file["labels"] = images.numpy(), labels.numpy().astype(np.int32)
            for group, statistics in (("parameters", False), ("statistics", True)):
                for name, tensor in named_tensors(network, statistics):
                    file[f"{group}/{name}"] = tensor.detach().numpy()
        if subprocess.run([program, given, got], check=False).returncode != 0:
            sys.exit(f"{program} failed on {case}")
        with h5py.File(got) as file:
            def read(group: str, names) -> dict[str, np.ndarray]:
                return {name: file[f"{group}/{name}"][()].astype(np.float64) for name, _ in names}
            return Step(file["loss"][()], file["evaluation_loss"][()], read("gradients", trained(network)),
                        read("statistics", named_tensors(network, statistics=True)))


def model_text(case: Case) -> str:
    """Its dropout draws other random numbers than PyTorch's, so that both are without."""
    text = (ROOT / f"jobs/models/{case.network}.toml").read_text(encoding="utf-8")
    return re.sub(r"^rate = .*", "rate = 0", text, flags=re.MULTILINE)


def norm_of(values) -> float:
    return float(np.sqrt(sum(np.sum(np.square(value)) for value in values)))


def gradient_distances(ours: Step, theirs: Step, exact: Step) -> dict[str, float]:
    """A bias before a batch norm has the gradient 0 except rounding, so it is relative to its layer's weight's."""
    distances = {}
    for name, gradient in theirs.gradients.items():
        weight = f"{name.rpartition('/')[0]}/weight"
        of_weight = norm_of([exact.gradients[weight]]) if weight in exact.gradients else 0
        vanishes = norm_of([exact.gradients[name]]) < 1e-9 * of_weight
        measure = norm_of([theirs.gradients[weight if vanishes else name]])
        distances[name] = norm_of([ours.gradients[name] - gradient]) / measure
    return distances


def distance(ours: Step, theirs: Step, exact: Step) -> Distance:
    gradients = gradient_distances(ours, theirs, exact)
    worst = max(gradients, key=gradients.__getitem__)
    names = theirs.gradients.keys()
    return Distance(
        loss=abs(ours.loss - theirs.loss) / abs(theirs.loss),
        gradient=gradients[worst],
        statistics=max((norm_of([ours.statistics[name] - value]) / norm_of([value])
                        for name, value in theirs.statistics.items()), default=0),
        evaluation=abs(ours.evaluation - theirs.evaluation) / abs(theirs.evaluation),
        all_gradients=norm_of(ours.gradients[name] - theirs.gradients[name] for name in names)
        / norm_of(theirs.gradients.values()),
        worst=worst)


def photographs(random: np.random.Generator, case: Case, labels: np.ndarray) -> np.ndarray:
    """Images with the spectrum of photographs: bytes over 255, smooth patches and edges, a pattern for each class."""
    channels, height, width = case.shape
    rows, columns = np.mgrid[0:height, 0:width] / max(height, width)
    images = np.zeros((case.samples, *case.shape))
    for octave in range(1, 5):
        coarse = random.normal(size=(case.samples, channels, 2**octave, 2**octave)) / 2**octave
        enlarged = nn.functional.interpolate(torch.from_numpy(coarse), (height, width), mode="bicubic")
        images += enlarged.numpy()
    for i, label in enumerate(labels):
        angle = np.pi * label / CLASSES
        images[i] += np.sin(20 * (rows * np.cos(angle) + columns * np.sin(angle)) + random.uniform(0, 6)) > 0.3
    images = (images - images.min()) / (images.max() - images.min())
    return (np.round(255 * images) / 255).astype(np.float32)


def starting_network(case: Case) -> nn.Module:
    """Kaiming's weights and random norms. Branches weigh less than the shortcuts, as in trained networks: otherwise
    rounding errors would grow so much that only noise is compared."""
    network = make_network(case.network, case.shape, CLASSES)
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
        elif isinstance(layer, nn.BatchNorm2d):
            ends_branch = name.endswith(".norm2" if case.network != "resnet50" else ".norm3")
            nn.init.uniform_(layer.weight, *((0.1, 0.4) if ends_branch else (0.5, 1.5)))
            nn.init.uniform_(layer.bias, -0.3, 0.3)
            nn.init.uniform_(layer.running_mean, -0.5, 0.5)
            nn.init.uniform_(layer.running_var, 0.5, 1.5)
    return network


def move_off_kinks(network: nn.Module, images: torch.Tensor) -> bool:
    """Moves the biases before the ReLUs so that no activation on these images is within rounding of 0.

    Returns whether the windows of max-pools are without ties, too.
    """
    gaps = [np.inf]
    twin = copy.deepcopy(network).double()

    def rectified(layer: nn.Module, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        y = layer(x) if residual is None else layer(x) + residual
        margin = KINK_MARGIN * y.square().mean().sqrt().item()
        by_channel = y.transpose(0, 1).flatten(1)
        for channel in (by_channel.abs().amin(1) < margin).nonzero().flatten().tolist():
            bias = layer.bias[channel].item()
            for step in range(1, 1000):
                moved = float(np.float32(bias + (step // 2 + 1) * margin * (-1) ** step))
                if (by_channel[channel] + (moved - bias)).abs().min() >= margin:
                    break
            layer.bias[channel] = moved
            y[:, channel] += moved - bias
        return torch.relu(y)

    def max_pooled(x: torch.Tensor, kernel: int, stride: int, padding: int = 0) -> torch.Tensor:
        windows = nn.functional.unfold(x.flatten(0, 1).unsqueeze(1), kernel, padding=padding, stride=stride)
        first, second = windows.topk(2, dim=1).values.unbind(1)
        gaps.append(((first - second)[first > 0].min() / x.square().mean().sqrt()).item())
        return nn.functional.max_pool2d(x, kernel, stride, padding)

    with mock.patch.multiple(reference_nets, rectified=rectified, max_pooled=max_pooled), torch.no_grad():
        twin.train()(images.double())
        for weight, moved in zip(network.parameters(), twin.parameters()):
            weight.copy_(moved)
    return min(gaps) >= TIE_MARGIN


def draw_batch(random: np.random.Generator, case: Case, network: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    while True:
        labels = random.integers(CLASSES, size=case.samples)
        images = torch.from_numpy(photographs(random, case, labels))
        if move_off_kinks(network, images):
            return images, torch.from_numpy(labels)


def compare_batch(program: str, case: Case, network: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]):
    """Computes one batch on all sides. Returns PyTorch's fp32 step and the distances by name of the pair."""
    twin = copy.deepcopy(network)
    exact = pytorch_step(copy.deepcopy(network).double(), *batch)
    ours = tutti_step(program, case, network, *batch)
    theirs = pytorch_step(network, *batch)
    pairs = {"Tutti to PyTorch fp32": (ours, theirs), "Tutti to PyTorch float64": (ours, exact),
             "PyTorch fp32 to float64": (theirs, exact)}
    if case.precision == "bf16":
        pairs["PyTorch bf16 to fp32"] = (pytorch_step(twin, *batch, autocast=True), theirs)
    return theirs, {name: distance(*pair, exact) for name, pair in pairs.items()}


def outside(case: Case, distances: dict[str, Distance]) -> list[str]:
    """A figure may miss its limit where PyTorch's own misses it as far: fp32 from float64, or bf16 from fp32."""
    near = distances["Tutti to PyTorch fp32"]
    if case.precision == "fp32":
        ours, peer = distances["Tutti to PyTorch float64"], distances["PyTorch fp32 to float64"]
    else:
        ours, peer = near, distances["PyTorch bf16 to fp32"]
    found = []
    for figure in CHECKED:
        limit, got = getattr(LIMITS[case.precision], figure), getattr(near, figure)
        if not (got <= limit or getattr(ours, figure) <= PEER_ALLOWANCE * getattr(peer, figure)):
            found.append(f"{figure}: {got:.1e} is above {limit:.0e}, and PyTorch's own distance is "
                         f"{getattr(peer, figure):.1e}")
    return found


def greater(one: Distance, other: Distance) -> Distance:
    """Returns the greater of each figure. NaN stays NaN."""
    figures = (float(np.maximum(*pair)) for pair in zip(dataclasses.astuple(one)[:-1], dataclasses.astuple(other)[:-1]))
    return Distance(*figures, one.worst if one.gradient > other.gradient else other.worst)


def compare(program: str, case: Case, batches: int) -> bool:
    print(f"\n{case}\nbatch     loss   d loss   d grad    d all   d stat   d eval  worst", flush=True)
    torch.manual_seed(1)
    random = np.random.default_rng(2)
    network = starting_network(case)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.002, momentum=0.9)
    greatest: dict[str, Distance] = {}
    for number in range(1, batches + 1):
        batch = draw_batch(random, case, network)
        theirs, distances = compare_batch(program, case, network, batch)
        optimizer.step()
        d = distances["Tutti to PyTorch fp32"]
        print(f"{number:>5} {theirs.loss:8.4f} {row(d)}  {d.worst}", flush=True)
        greatest = {pair: greater(one, greatest.get(pair, one)) for pair, one in distances.items()}
    for pair, most in greatest.items():
        print(f"  most         {row(most)}  {pair}, {most.worst}")
    found = outside(case, greatest)
    print("\n".join(f"  OUTSIDE {what}" for what in found) or "  within the limits", flush=True)
    return not found


def row(d: Distance) -> str:
    return " ".join(f"{value:8.1e}" for value in (d.loss, d.gradient, d.all_gradients, d.statistics, d.evaluation))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog=f"A Python with torch: {peer_python.REMEDY}")
    parser.add_argument("--program", default=str(ROOT / "build/release/tests/one_step"), help="default: %(default)s")
    parser.add_argument("--model", choices=sorted(NETWORKS), help="only the cases of this network")
    parser.add_argument("--precision", choices=sorted(LIMITS), help="only the cases of this precision")
    parser.add_argument("--batches", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch; default: %(default)s")
    options = parser.parse_args()
    if not pathlib.Path(options.program).is_file():
        sys.exit(f"{options.program} is not built: cmake --build build/release --target one_step")
    torch.set_num_threads(options.threads)
    cases = [case for case in CASES
             if options.model in (None, case.network) and options.precision in (None, case.precision)]
    print(f"PyTorch {torch.__version__}; d grad: worst tensor; d all: all gradients as one vector")
    good = [compare(options.program, case, options.batches) for case in cases]
    sys.exit(0 if good and all(good) else 1)


if __name__ == "__main__":
    main()
