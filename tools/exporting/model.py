"""Networks as the text of a model file (include/tutti/nn/model_file.hpp), layer for layer.

Checkpoints contain that text, and may come from anywhere. A value that is not a number, a name or a flag where trainer
writes one is refused, since the text becomes source of modules."""

import dataclasses
import math
import re
import tomllib
from typing import Callable, Iterator

from exporting.errors import ExportError
from exporting.functions import FUNCTIONS, Function

IMAGE = "image"  # the name of the image as a layer's input


@dataclasses.dataclass(frozen=True)
class Conv2d:
    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0
    bias: bool = True
    relu: bool = False
    groups: int = 1
    dilation: int = 1


@dataclasses.dataclass(frozen=True)
class MaxPool2d:
    kernel: int
    stride: int
    padding: int = 0


@dataclasses.dataclass(frozen=True)
class AveragePool2d:
    kernel: int
    stride: int
    padding: int = 0


@dataclasses.dataclass(frozen=True)
class Linear:
    units: int | str  # "classes": the number of classes of the data
    bias: bool = True
    relu: bool = False


@dataclasses.dataclass(frozen=True)
class BatchNorm:
    add: bool = False
    relu: bool = False
    momentum: float = 0.1  # the share of each step's statistics in the running ones
    epsilon: float = 1e-5


@dataclasses.dataclass(frozen=True)
class Add:
    relu: bool = False


@dataclasses.dataclass(frozen=True)
class GlobalAveragePool:
    pass


@dataclasses.dataclass(frozen=True)
class Dropout:
    rate: float


@dataclasses.dataclass(frozen=True)
class Elementwise:
    function: Function
    factor: float = 1.0


def elementwise(function: Function) -> Callable[..., Elementwise]:
    if function.takes_factor():
        return lambda *, factor: Elementwise(function, factor)
    return lambda: Elementwise(function)


Spec = Conv2d | MaxPool2d | AveragePool2d | Linear | BatchNorm | Add | GlobalAveragePool | Dropout | Elementwise
SPECS = {"conv2d": Conv2d, "max-pool2d": MaxPool2d, "average-pool2d": AveragePool2d, "linear": Linear,
         "batch-norm": BatchNorm, "add": Add, "global-average-pool": GlobalAveragePool, "dropout": Dropout,
         **{name: elementwise(function) for name, function in FUNCTIONS.items()}}


@dataclasses.dataclass(frozen=True)
class Layer:
    name: str
    spec: Spec
    source: str  # the layer whose output is its input, or IMAGE
    residual: str | None  # and the one whose output it adds

    def kinds(self) -> tuple[str, ...]:
        """The kinds of its arrays, as checkpoints name them."""
        match self.spec:
            case Conv2d(bias=bias) | Linear(bias=bias):
                return ("weight", "bias") if bias else ("weight",)
            case BatchNorm():
                return "scale", "shift", "mean", "variance"
        return ()


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    layers: tuple[Layer, ...]

    def arrays(self) -> Iterator[tuple[Layer, str, str]]:
        """Yields the layer, the kind and the path in a checkpoint of each array."""
        for layer in self.layers:
            for kind in layer.kinds():
                group = "statistics" if kind in ("mean", "variance") else "parameters"
                yield layer, kind, f"/{group}/{layer.name}/{kind}"


def parse(text: str, origin: str) -> Model:
    try:
        root = tomllib.loads(text)
        layers: list[Layer] = []
        for table in root["layer"]:
            layers.append(layer_of(table, [IMAGE, *(layer.name for layer in layers)], origin))
        if not layers or not isinstance(root["name"], str):
            raise TypeError("it has no layers, or no name")
        return Model(root["name"], tuple(layers))
    except (tomllib.TOMLDecodeError, KeyError, TypeError, RecursionError) as error:
        raise ExportError(f"{origin}: its model cannot be read ({error}); was it written by a newer trainer? "
                          "Use the tools/export that came with it") from error


NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]+", re.ASCII)  # of a layer
FIELDS = {"kernel": "number", "stride": "number", "channels": "number", "padding": "number", "units": "units",
          "groups": "number", "dilation": "number", "rate": "share", "factor": "real", "momentum": "real",
          "epsilon": "real", "bias": "flag", "relu": "flag", "add": "flag"}
LEAST = {"padding": 0}  # of numbers; all others are 1 or more
GREATEST = 1 << 31


def is_of_kind(field: str, value: object) -> bool:
    match FIELDS.get(field):
        case "flag":
            return isinstance(value, bool)
        case "share" | "real" as kind:
            is_real = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            return is_real and (kind == "real" or 0 <= value < 1)
        case "units" if value == "classes":
            return True
    return type(value) is int and LEAST.get(field, 1) <= value < GREATEST


def layer_of(table: dict, earlier: list[str], origin: str) -> Layer:
    keys = {key: value for key, value in table.items() if key not in ("init", "frozen")}  # which concern training
    name, word = keys.pop("name"), keys.pop("type")
    source, residual = keys.pop("input", earlier[-1]), keys.pop("residual", None)
    if not isinstance(name, str) or not NAME.fullmatch(name) or name in earlier:
        raise ExportError(f"{origin}: {name!r} is no name of a layer: trainer has not written this model")
    if source not in earlier or residual not in (None, *earlier):
        raise ExportError(f"{origin}: layer {name} reads {source!r} and {residual!r}, which are not all layers before "
                          "it: trainer has not written this model")
    for field, value in keys.items():
        if field in FIELDS and not is_of_kind(field, value):
            raise ExportError(f"{origin}: layer {name} has {field} = {value!r}, which is no {FIELDS[field]} that a "
                              "layer can have: trainer has not written this model")
    if word not in SPECS:
        raise ExportError(f"{origin}: layer {name} is of the type '{word}', but tools/export knows only "
                          f"{', '.join(SPECS)}")
    if word.endswith("-pool2d"):
        keys.setdefault("stride", keys["kernel"])
    return Layer(name, SPECS[word](**keys), source, residual)


Image = tuple[int, int, int]  # channels, height, width
Extents = tuple[int, int | str, int | str]  # likewise; a name for an open extent
Shapes = dict[str, tuple[int, ...]]  # of a checkpoint's arrays, by their paths in it
GREATEST_SIDE = 1024


def fitting_images(model: Model, shapes: Shapes) -> list[Image]:
    """The square images that fit the weights: gray and coloured ones if the first layer is linear."""
    channels = image_channels(model, shapes)
    return [(count, side, side) for count in ([channels] if channels else [1, 3])
            for side in range(1, GREATEST_SIDE + 1) if fits(model, shapes, (count, side, side))]


def image_channels(model: Model, shapes: Shapes) -> int | None:
    """The number of channels from the first weights, or None if they are those of a linear layer."""
    unchanged = {IMAGE}
    for layer in model.layers:
        if layer.source not in unchanged:
            continue
        match layer.spec:
            case Conv2d():
                return shapes[f"/parameters/{layer.name}/weight"][1] * layer.spec.groups
            case BatchNorm():
                return shapes[f"/parameters/{layer.name}/scale"][0]
            case Linear():
                pass
            case _:
                unchanged.add(layer.name)
    return None


def fits(model: Model, shapes: Shapes, image: Image) -> bool:
    classes = next(shape[0] for place, shape in reversed(shapes.items()) if place.endswith("/weight"))
    expected = shapes_for(model, image, classes)
    return expected is not None and all(expected.get(place) == shape for place, shape in shapes.items())


def shapes_for(model: Model, image: Image, classes: int) -> Shapes | None:
    """The arrays' shapes in a network for such images, or None if they do not fit. Follows the image's shape from layer
    to layer; a vector's height and width are 1."""
    outputs, weights = {IMAGE: image}, {}
    for layer in model.layers:
        channels, *extents = outputs[layer.source]
        match layer.spec:
            case Conv2d() | MaxPool2d() | AveragePool2d() as spec:
                window = (spec.kernel - 1) * getattr(spec, "dilation", 1) + 1
                extents = [(extent + 2 * spec.padding - window) // spec.stride + 1 for extent in extents]
                if isinstance(spec, Conv2d):
                    weights[layer.name] = (spec.channels, channels // spec.groups, spec.kernel, spec.kernel)
                    channels = spec.channels
            case GlobalAveragePool():
                extents = [1, 1]
            case Linear(units=units):
                units = classes if units == "classes" else units
                weights[layer.name] = (units, channels * extents[0] * extents[1])
                channels, extents = units, [1, 1]
        if min(extents) < 1 or (layer.residual and outputs[layer.residual] != (channels, *extents)):
            return None
        outputs[layer.name] = channels, *extents
    return {place: weights[layer.name] if kind == "weight" else outputs[layer.name][:1]
            for layer, kind, place in model.arrays()}


def vectors(model: Model) -> set[str]:
    """The layers whose outputs are vectors."""
    found: set[str] = set()
    for layer in model.layers:
        if isinstance(layer.spec, Linear) or layer.source in found:
            found.add(layer.name)
    return found
