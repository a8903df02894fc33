"""torchvision's networks: which of ours they are, and what they call its layers."""

import functools
import json
import pathlib
import re

import numpy as np
import torch

from exporting import model as nets
from exporting import state_dicts, torch_file
from exporting.checkpoint import Checkpoint
from exporting.errors import ExportError
from exporting.model import Image, Model

RESNET = {"stem.conv": "conv1", "stem.norm": "bn1", "head": "fc"}
OF_BLOCK = {"conv": "conv", "norm": "bn", "shortcut": "downsample.0", "shortcut_norm": "downsample.1"}
VGG11 = {"stage1.conv1": "features.0", "stage2.conv1": "features.3", "stage3.conv1": "features.6",
         "stage3.conv2": "features.8", "stage4.conv1": "features.11", "stage4.conv2": "features.13",
         "stage5.conv1": "features.16", "stage5.conv2": "features.18", "dense1": "classifier.0",
         "dense2": "classifier.3", "head": "classifier.6"}
NETWORKS = {"resnet18-imagenet": RESNET, "resnet34-imagenet": RESNET, "resnet50": RESNET, "vgg11": VGG11,
            "mobilenet_v2": {}}  # our names of torchvision's networks
PLACES = pathlib.Path(__file__).resolve().parents
# The installed model files are in the folder of the tools; in a checkout, they are above them.
MODELS = next((place for place in (PLACES[1] / "jobs/models", PLACES[2] / "jobs/models") if place.exists()),
              PLACES[2] / "jobs/models")
IMAGE = (3, 224, 224)
NORMALIZE = "0.485,0.456,0.406/0.229,0.224,0.225"  # of ImageNet's pixels
NUMBERS = {"/format_version": np.array(2, np.int32), "/progress/parts": np.array(1),
           "/progress/best": np.array([-1, 0, 0]), "/progress/epoch_sums": np.zeros(4, np.int64),
           **{f"/progress/{name}": np.array(0.0) for name in ("learning_rate", "epoch_seconds")},
           **{f"/progress/{name}": np.array(0) for name in ("epoch", "step_in_epoch", "step", "samples_in_epoch",
                                                            "carried_over", "planned_steps", "seed")}}


@functools.cache
def built_in(name: str) -> tuple[str, Model]:
    """The text of a model file, and its network."""
    text = (MODELS / f"{name}.toml").read_text(encoding="utf-8")
    return text, nets.parse(text, f"{name}.toml")


def original_of(name: str) -> str:
    """torchvision's name of the network that we call so."""
    return name.removesuffix("-imagenet")


def refuse_others(model: Model) -> None:
    if model.name not in NETWORKS or model.layers != built_in(model.name)[1].layers:
        raise ExportError(f"--names torchvision: torchvision has no network like {model.name}, only like "
                          f"{', '.join(NETWORKS)}: leave --names out")


def names_of(model: Model) -> torch_file.Rename:
    """Returns the function from our name of a layer to torchvision's."""
    refuse_others(model)
    table = NETWORKS[model.name]

    def name_of(layer: str) -> str:
        if block := re.fullmatch(r"stage(\d)\.block(\d)\.([a-z_]+)(\d?)", layer):
            return f"layer{block[1]}.{int(block[2]) - 1}.{OF_BLOCK[block[3]]}{block[4]}"
        return table.get(layer, layer)

    return name_of


def in_order(keys: list[str]) -> list[str]:
    """torchvision's order, which has the shortcut of a block last."""
    blocks: dict[str, list[str]] = {}
    for key in keys:
        block = re.match(r"layer\d\.\d\.", key)
        blocks.setdefault(block[0] if block else key, []).append(key)
    return [key for block in blocks.values() for key in sorted(block, key=lambda key: ".downsample." in key)]


def network_of(checkpoint: Checkpoint) -> torch.nn.Module:
    from torchvision.models import get_model

    refuse_others(checkpoint.model)
    return get_model(original_of(checkpoint.model.name), num_classes=checkpoint.classes())


def expected_keys() -> dict[str, set[str]]:
    """The names of the tensors of each network."""
    models = {name: built_in(name)[1] for name in NETWORKS}
    return {name: torch_file.keys_of(model, names_of(model)) for name, model in models.items()}


def recognized(path: pathlib.Path, state: dict) -> str:
    """Our name of the network that has the tensors of this state dict."""
    keys = {str(key) for key in state if not str(key).endswith(torch_file.COUNTED)}
    expected = expected_keys()
    name = min(NETWORKS, key=lambda one: len(keys ^ expected[one]))
    wrong = keys ^ expected[name]
    if not wrong:
        return name
    known = f"those that --names torchvision reads: {', '.join(map(original_of, NETWORKS))}"
    if 2 * len(keys & expected[name]) < min(len(keys), len(expected[name])):
        raise ExportError(f"{path}: {state_dicts.looks(state)}; it is none of {known}")
    key = min(wrong)
    raise ExportError(f"{path}: {'it has no' if key in expected[name] else 'it has a'} tensor {key}, unlike "
                      f"torchvision's {original_of(name)}, the most similar network of {known}")


def untrained(path: pathlib.Path, state: dict, image: Image) -> Checkpoint:
    """The network of a state dict as a checkpoint without values, for images that are normalized as in torchvision."""
    name = recognized(path, state)
    text, model = built_in(name)
    shapes = nets.shapes_for(model, image, classes=1)
    if shapes is None:
        raise ExportError(f"--image {'x'.join(map(str, image))} does not fit the network {name}")
    options = {"model": name, "data": "", "image-size": image[1], "exif": "on", "normalize": NORMALIZE,
               "precision": "fp32"}
    run = {"configuration": "".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items()),
           "model": re.sub(r"^#.*\n", "", text), "command_line": "tools/export --names torchvision",
           "versions": "torchvision", "data_digest": "0" * 16,
           "data": json.dumps({"image": image, "classes": 1, "class_names": []})}
    return Checkpoint(pathlib.Path(f"{name}.toml"), {
        **{f"/run/{key}": text for key, text in run.items()}, **NUMBERS,
        **{place: np.zeros(shape, np.float32) for place, shape in shapes.items()}})
