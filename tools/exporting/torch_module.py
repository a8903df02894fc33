"""A network as the source of a small, self-contained PyTorch module for the state dict of torch_file.py."""

import keyword
import re

from torch import nn

from exporting import model as nets
from exporting import prepare_source
from exporting.checkpoint import Checkpoint
from exporting.errors import ExportError
from exporting.functions import FUNCTIONS
from exporting.model import IMAGE, Extents, Layer

HEAD = '''"""The network {name}, as trained for {step} steps by Tutti; written by tools/export.

    network = Network()
    network.load_state_dict(torch.load("{state}"))
    probabilities = network.eval()({images}).softmax(1)

Images are N x {image}, {values}.
"""

import torch
from torch import Tensor, nn
{functions}{constants}{prepare}

class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
'''


def source_of(checkpoint: Checkpoint, image: Extents, state: str, normalizes: bool) -> str:
    return Writer(checkpoint, image, normalizes).source(state)


def network_of(source: str) -> nn.Module:
    names: dict = {}
    exec(compile(source, "the module", "exec"), names)
    return names["Network"]()


class Writer:
    def __init__(self, checkpoint: Checkpoint, image: Extents, normalizes: bool):
        self.checkpoint = checkpoint
        self.model = checkpoint.model
        self.image = image
        self.statistics = checkpoint.statistics(image[0])
        self.normalizes = normalizes and self.statistics is not None
        self.vectors = nets.vectors(self.model)
        self.variables = {IMAGE: IMAGE}
        self.functions: set[str] = set()

    def source(self, state: str) -> str:
        makes, statements = self.makes(), self.statements()
        functions = ", ".join(sorted(self.functions))
        is_plain_pixel = self.statistics is None or self.normalizes
        prepare = prepare_source.source_of(self.checkpoint, self.image, not is_plain_pixel)
        head = HEAD.format(name=in_docstring(self.model.name), step=self.checkpoint.step, state=in_docstring(state),
                           image=" x ".join(map(str, self.image)),
                           values="pixel / 255" if is_plain_pixel else "(pixel / 255 - MEAN) / DEVIATION",
                           functions=f"from torch.nn.functional import {functions}\n" if functions else "",
                           constants=self.constants(), prepare=prepare,
                           images='prepare("image.jpg")' if prepare else "images")
        return head + "".join(f"        {line}\n" for line in makes) + \
            "\n    def forward(self, image: Tensor) -> Tensor:\n" + "".join(f"        {line}\n" for line in statements)

    def constants(self) -> str:
        text = ""
        for name, values in zip(("MEAN", "DEVIATION"), self.statistics or ()):
            text += f"{name} = torch.tensor({values.tolist()}).view(-1, 1, 1)\n"
        if names := self.checkpoint.trained_on().get("class_names"):
            text += "CLASSES = [\n" + "".join(f"    {name!r},\n" for name in names) + "]\n"
        return text and "\n" + text

    def makes(self) -> list[str]:
        """The lines of __init__: submodules for names with dots, and the layers with arrays."""
        lines = []
        made: set[str] = set()
        for layer in self.model.layers:
            if not layer.kinds():
                continue
            folders = layer.name.split(".")[:-1]
            for depth in range(1, len(folders) + 1):
                folder = ".".join(folders[:depth])
                if folder not in made:
                    lines.append(assignment(folder, "nn.Module()"))
            lines.append(assignment(layer.name, self.make(layer)))
            made |= {layer.name, *(".".join(folders[:depth + 1]) for depth in range(len(folders)))}
        return lines

    def make(self, layer: Layer) -> str:
        spec = layer.spec
        weight = None if isinstance(spec, nets.BatchNorm) else self.array(layer, "weight").shape
        bias = "" if getattr(spec, "bias", True) else ", bias=False"
        match spec:
            case nets.Conv2d():
                more = "".join(f", {key}={getattr(spec, key)}" for key in ("groups", "dilation")
                               if getattr(spec, key) != 1)
                return f"nn.Conv2d({weight[1] * spec.groups}, {weight[0]}, {spec.kernel}{window(spec, 1)}{more}{bias})"
            case nets.Linear():
                return f"nn.Linear({weight[1]}, {weight[0]}{bias})"
        usual = nets.BatchNorm()
        more = "".join(f", {word}={getattr(spec, key)!r}"
                       for word, key in (("eps", "epsilon"), ("momentum", "momentum"))
                       if getattr(spec, key) != getattr(usual, key))
        return f"nn.BatchNorm2d({self.array(layer, 'scale').shape[0]}{more})"

    def array(self, layer: Layer, kind: str):
        return self.checkpoint.array(f"/parameters/{layer.name}/{kind}")

    def statements(self) -> list[str]:
        """The lines of forward. An output that only the next layer uses is named x."""
        lines = []
        if self.normalizes:
            lines.append("image = (image - MEAN.to(image)) / DEVIATION.to(image)")
        layers = self.model.layers
        for number, layer in enumerate(layers):
            rest = layers[number + 1:]
            result = self.statement(layer)
            if not rest:
                lines.append(f"return {result}")
                break
            later = any(layer.name in (other.source, other.residual) for other in rest[1:])
            name = self.variable(layer.name) if later or rest[0].source != layer.name else "x"
            self.variables[layer.name] = name
            lines.append(f"{name} = {result}")
        return lines

    def variable(self, name: str) -> str:
        """Returns a unique name of a variable."""
        plain = re.sub(r"\W", "_", name)
        plain = f"_{plain}" if not plain.isidentifier() or keyword.iskeyword(plain) else plain
        while plain in TAKEN or plain in self.variables.values():
            plain += "_"
        return plain

    def statement(self, layer: Layer) -> str:
        spec, given = layer.spec, self.variables[layer.source]
        result = self.call(layer, given)
        if layer.residual is not None:
            result = f"{result} + {self.variables[layer.residual]}"
        if getattr(spec, "relu", False):
            self.functions.add("relu")
            result = f"relu({result})"
        return result

    def call(self, layer: Layer, given: str) -> str:
        match layer.spec:
            case nets.Add():
                return given
            case nets.MaxPool2d() | nets.AveragePool2d() as spec:
                function = "max_pool2d" if isinstance(spec, nets.MaxPool2d) else "avg_pool2d"
                self.functions.add(function)
                return f"{function}({given}, {spec.kernel}{window(spec, spec.kernel)})"
            case nets.GlobalAveragePool():
                self.functions.add("adaptive_avg_pool2d")
                return f"adaptive_avg_pool2d({given}, 1)"
            case nets.Dropout(rate=rate):
                self.functions.add("dropout")
                return f"dropout({given}, {rate}, self.training)"
            case nets.Elementwise(function=function, factor=factor):
                if function.takes_factor():
                    return f"{given} * {float(factor)!r}"
                self.functions.add(function.torch)
                return f"{function.torch}({given})"
            case nets.Linear() if layer.source not in self.vectors:
                return f"{place_of(layer.name)}({given}.flatten(1))"
        return f"{place_of(layer.name)}({given})"


TAKEN = {"x", "self", "torch", "nn", "relu", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "dropout",
         *(function.torch for function in FUNCTIONS.values())}


def window(spec: nets.Conv2d | nets.MaxPool2d | nets.AveragePool2d, usual_stride: int) -> str:
    stride = "" if spec.stride == usual_stride else f", stride={spec.stride}"
    return stride + (f", padding={spec.padding}" if spec.padding else "")


def is_plain(word: str) -> bool:
    """Whether it can follow a dot. A module of any other name needs getattr."""
    if not word or hasattr(nn.Module(), word):
        raise ExportError(f"no module can be called '{word}' inside another in PyTorch, as a layer of this network "
                          "would be: leave out --module, or use --to-onnx")
    return word.isidentifier() and not keyword.iskeyword(word)


def in_docstring(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in escaped)


def assignment(name: str, made: str) -> str:
    place = place_of(name)
    if not place.endswith(")"):
        return f"{place} = {made}"
    folder, _, last = name.rpartition(".")
    return f'{place_of(folder)}.add_module("{last}", {made})'


def place_of(name: str) -> str:
    """The expression for a module in a method: self.stem.conv."""
    words = name.split(".") if name else []
    if all(is_plain(word) for word in words):
        return ".".join(["self", *words])
    return f'self.get_submodule("{name}")'
