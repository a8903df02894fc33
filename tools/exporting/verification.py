"""Evaluates the same images in trainer and in another runtime, and compares the outputs number by number."""

import csv
import dataclasses
import pathlib
import subprocess
import tempfile
from typing import Protocol

import numpy as np

from exporting import checkpoint as checkpoints
from exporting import data_file
from exporting.checkpoint import Checkpoint
from exporting.errors import ExportError
from exporting.model import Image

MOST_IMAGES = 1000  # of a data set
AT_ONCE = 100
LIMIT = 1e-5  # of a probability
FP32 = 'precision = "fp32"'


class Network(Protocol):
    """A network in another runtime."""

    name: str
    normalizes: bool  # its input is always pixel / 255

    def logits(self, images: np.ndarray) -> np.ndarray: ...


class OnnxNetwork:
    def __init__(self, path: pathlib.Path):
        import onnxruntime

        self.name = f"{path} in onnxruntime {onnxruntime.__version__}"
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.normalizes = self.session.get_modelmeta().custom_metadata_map["normalize"].startswith("in the graph")

    def logits(self, images: np.ndarray) -> np.ndarray:
        return self.session.run(["logits"], {"image": images})[0]


class TorchNetwork:
    """A module with a state dict."""

    def __init__(self, state: pathlib.Path, network, normalizes: bool):
        import torch

        from exporting import state_dicts

        self.name = f"{state} in PyTorch {torch.__version__}"
        self.network = network
        self.network.load_state_dict(state_dicts.plain(state_dicts.load(state), set(network.state_dict()))[0])
        self.network.eval()
        self.normalizes = normalizes

    def logits(self, images: np.ndarray) -> np.ndarray:
        import torch

        with torch.no_grad():
            return self.network(torch.from_numpy(images)).numpy()


@dataclasses.dataclass(frozen=True)
class Request:
    data: str  # a source of images for trainer, or the number of random ones
    image: Image | None  # of random images; None: unknown
    trainer: pathlib.Path


def verify(checkpoint: Checkpoint, networks: list[Network], request: Request) -> bool:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        images = images_for(checkpoint, request, folder)
        ours = trainer_probabilities(checkpoint, images, request.trainer, folder)
    print(f"verified in fp32 with {len(images)} images of {'x'.join(map(str, images.shape[1:]))}:")
    return all([compare(checkpoint, network, images, ours) for network in networks])


def images_for(checkpoint: Checkpoint, request: Request, folder: pathlib.Path) -> np.ndarray:
    """Returns images of bytes."""
    if request.data.isdigit():
        if request.image is None:
            raise ExportError(f"{checkpoint.path}: the size of its images is unknown: give --image CxHxW, or images "
                              "with --verify DATA")
        return np.random.default_rng(1).integers(256, size=(int(request.data), *request.image), dtype=np.uint8)
    converted = folder / "data.h5"
    _, height, width = checkpoint.trained_on().get("image", [0, 0, 0])
    size = height if height == width else 0  # 0: unchanged
    run([request.trainer, "data", "convert", request.data, converted, "--image-size", size])
    return data_file.read_images(converted, MOST_IMAGES)


def compare(checkpoint: Checkpoint, network: Network, images: np.ndarray, ours: np.ndarray) -> bool:
    values = images.astype(np.float32) / np.float32(255)
    statistics = checkpoint.statistics(images.shape[1])
    if statistics is not None and not network.normalizes:
        mean, deviation = (one.astype(np.float32).reshape(-1, 1, 1) for one in statistics)
        values = (values - mean) / deviation
    theirs = probabilities(np.concatenate([network.logits(values[first:first + AT_ONCE])
                                           for first in range(0, len(values), AT_ONCE)]))
    if len(theirs) != len(ours):
        raise ExportError(f"trainer predicted {len(ours)} of {len(theirs)} images, so that nothing can be compared")
    if theirs.shape != ours.shape:
        raise ExportError(f"{network.name} gives {theirs.shape[1]} values for an image, trainer {ours.shape[1]}")
    equal = int((theirs.argmax(1) == ours.argmax(1)).sum())
    apart = float(np.abs(theirs - ours).max())
    good = equal == len(images) and apart < LIMIT
    print(f"  {network.name}: {equal} of {len(images)} have the same label, probabilities differ by {apart:.1e} at most"
          + ("" if good else f": NOT EQUAL (all, and below {LIMIT:.0e})"), flush=True)
    return good


def trainer_probabilities(checkpoint: Checkpoint, images: np.ndarray, trainer: pathlib.Path,
                          folder: pathlib.Path) -> np.ndarray:
    """Computed in fp32, the precision of the weights, whatever the run computed in."""
    data, table = folder / "images.h5", folder / "predictions.csv"
    data_file.write_images(data, images, checkpoint.classes())
    path = in_fp32(checkpoint, folder / "fp32.h5")
    run([trainer, "predict", "--checkpoint", path, "--data", data, "--on", "train", "--views", "none",
         "--device", "cpu", "--probabilities", "--csv", table])
    with table.open(encoding="utf-8", newline="") as lines:
        header, *rows = csv.reader(lines)
    columns = [number for number, name in enumerate(header) if name.startswith("p_")]
    return np.array([[float(row[column]) for column in columns] for row in rows])


def in_fp32(checkpoint: Checkpoint, other: pathlib.Path) -> pathlib.Path:
    precision = f'precision = "{checkpoint.option("precision")}"'
    if precision == FP32 and not checkpoint.is_changed:
        return checkpoint.path
    text = checkpoint.text("/run/configuration").replace(f"\n{precision}\n", f"\n{FP32}\n")
    checkpoints.write(Checkpoint(other, checkpoint.values | {"/run/configuration": text}))
    return other


def probabilities(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def run(words: list) -> str:
    try:
        done = subprocess.run([str(word) for word in words], check=False, capture_output=True, text=True)
    except OSError as error:
        raise ExportError(f"{words[0]}: {error.strerror}; tools/demo builds it, or name one with --trainer") from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise ExportError(lines[-1] if lines else f"{words[0]} {words[1]} ended with {done.returncode}")
    return done.stdout
