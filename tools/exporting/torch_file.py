"""Converts checkpoints to PyTorch state dicts and back. Needs PyTorch."""

import dataclasses
import json
import pathlib
from collections import OrderedDict
from typing import Callable

import numpy as np
import torch

from exporting.checkpoint import Checkpoint
from exporting.errors import ExportError
from exporting.model import Layer, Linear, Model
from exporting.whole_file import write_atomically

NAMES = {"weight": "weight", "bias": "bias", "scale": "weight", "shift": "bias", "mean": "running_mean",
         "variance": "running_var"}  # PyTorch's, of each kind of array
COUNTED = "num_batches_tracked"  # of a batch norm; nothing reads it at PyTorch's default momentum


Rename = Callable[[str], str]  # from the name of a layer in a model to that in a state dict; str: the same
Order = Callable[[list[str]], list[str]]  # sorts names in a state dict; list: not at all


@dataclasses.dataclass(frozen=True)
class StateDict:
    path: pathlib.Path
    tensors: dict
    rename: Rename = str


def key_of(layer: Layer, kind: str, rename: Rename) -> str:
    return f"{rename(layer.name)}.{NAMES[kind]}"


def keys_of(model: Model, rename: Rename) -> set[str]:
    return {key_of(layer, kind, rename) for layer, kind, _ in model.arrays()}


def write(checkpoint: Checkpoint, path: pathlib.Path, rename: Rename = str, in_order: Order = list) -> None:
    state = {}
    for layer, kind, place in checkpoint.model.arrays():
        key = key_of(layer, kind, rename)
        if key in state:
            raise ExportError(f"{checkpoint.path}: two arrays would be called {key} in PyTorch: rename a layer")
        state[key] = torch.from_numpy(checkpoint.array(place).copy())
        if kind == "variance":
            state[f"{rename(layer.name)}.{COUNTED}"] = torch.tensor(checkpoint.step)
    ordered = OrderedDict((key, state[key]) for key in in_order([*state]))
    write_atomically(path, lambda unfinished: torch.save(ordered, unfinished))


def read(source: StateDict, like: Checkpoint, target: pathlib.Path) -> Checkpoint:
    """A copy of `like` with the values of the state dict and the path `target`. Only a layer that has a unit for each
    class may have another number of them."""
    path, state = source.path, source.tensors
    values = dict(like.values)
    expected = set()
    for layer, kind, place in like.model.arrays():
        key = key_of(layer, kind, source.rename)
        expected |= {key, f"{source.rename(layer.name)}.{COUNTED}"}
        if not isinstance(state.get(key), torch.Tensor):
            raise ExportError(f"{path}: it has no tensor {key}, which {like.path} has: give a state dict of its model, "
                              f"{like.model.name}")
        tensor = state[key].detach().cpu()
        free = 1 if isinstance(layer.spec, Linear) and layer.spec.units == "classes" else 0
        wanted = like.array(place).shape
        if tensor.ndim != len(wanted) or tuple(tensor.shape)[free:] != wanted[free:]:
            raise ExportError(f"{path}: {key} is {tuple(tensor.shape)}, but {wanted} in {like.path}")
        if not tensor.dtype.is_floating_point or tensor.dtype == torch.float64:
            raise ExportError(f"{path}: {key} is of the type {tensor.dtype}: save it as fp32, as .float() makes it")
        values[place] = np.ascontiguousarray(tensor.float().numpy())
    if others := sorted(set(state) - expected):
        raise ExportError(f"{path}: {others[0]} is in no layer of {like.path}: give a state dict of its model, "
                          f"{like.model.name}")
    return with_classes(Checkpoint(target, values))


def with_class_names(checkpoint: Checkpoint, names: list[str]) -> Checkpoint:
    data, classes = checkpoint.trained_on(), checkpoint.classes()
    if not data:
        raise ExportError(f"{checkpoint.path}: it says nothing of its data, so that its classes cannot be named")
    if len({*names}) != classes or len(names) != classes:
        raise ExportError(f"--classes has {len({*names})} different names, and the network {classes} classes")
    checkpoint.values["/run/data"] = json.dumps(data | {"class_names": names}, separators=(",", ":"))
    return checkpoint


def with_classes(checkpoint: Checkpoint) -> Checkpoint:
    """Adapts the checkpoint's description of its data to its last layer, which may be a new one."""
    data, classes = checkpoint.trained_on(), checkpoint.classes()
    if data and data["classes"] != classes:
        data |= {"classes": classes, "class_names": []}
        checkpoint.values["/run/data"] = json.dumps(data, separators=(",", ":"))
    return checkpoint
