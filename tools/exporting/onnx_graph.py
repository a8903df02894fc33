"""A network in evaluation as an ONNX graph: every layer becomes one operator, or a few.

Arrays have the checkpoint's names, "conv1/weight". A node has the name of its layer, "conv1", for further operators
with a suffix, "conv1/relu", and its output is "conv1/relu/output"."""

import numpy as np

from exporting import model as nets
from exporting.checkpoint import Checkpoint
from exporting.functions import Step
from exporting.model import Extents, Layer
from exporting.onnx_messages import ATTRIBUTE_KINDS, FLOAT_ARRAY

INPUT, OUTPUT = nets.IMAGE, "logits"


def graph_of(checkpoint: Checkpoint, image: Extents, normalizes: bool) -> dict:
    return Builder(checkpoint).graph(image, normalizes)


class Builder:
    def __init__(self, checkpoint: Checkpoint):
        self.checkpoint = checkpoint
        self.nodes: list[dict] = []
        self.arrays: list[dict] = []
        self.vectors = nets.vectors(checkpoint.model)
        self.outputs = {nets.IMAGE: INPUT}  # of layers

    def graph(self, image: Extents, normalizes: bool) -> dict:
        layers = self.checkpoint.model.layers
        values = "pixel / 255"
        if normalizes:
            self.add_steps(nets.IMAGE, self.normalization(image[0]))
        elif self.checkpoint.statistics(image[0]) is not None:
            values = f"(pixel / 255 - M) / S, M/S = {self.checkpoint.option('normalize')}"
        for layer in layers:
            self.outputs[layer.name] = self.outputs[layer.source]
            self.add_steps(layer.name, self.steps_of(layer))
        self.nodes[-1]["output"] = [OUTPUT]
        meaning = f"of layer {layers[-1].name}; softmax makes probabilities of them"
        return {"node": self.nodes, "name": self.checkpoint.model.name, "initializer": self.arrays,
                "input": [value(INPUT, ("batch", *image), values)],
                "output": [value(OUTPUT, ("batch", self.checkpoint.classes()), meaning)]}

    def normalization(self, channels: int) -> list[Step]:
        mean, deviation = (self.array(f"{INPUT}/{name}", values.astype(np.float32).reshape(1, channels, 1, 1))
                           for name, values in zip(("mean", "deviation"), self.checkpoint.statistics(channels)))
        return [Step("Sub", [mean], word="centre"), Step("Div", [deviation], word="scale")]

    def steps_of(self, layer: Layer) -> list[Step]:
        spec, steps = layer.spec, []
        if isinstance(spec, nets.Linear) and layer.source not in self.vectors:
            steps.append(Step("Flatten", [], {"axis": 1}, "flatten"))
        if isinstance(spec, nets.Elementwise):
            steps = spec.function.steps(self.outputs[layer.source], spec.factor, lambda name, number:
                                        self.array(f"{layer.name}/{name}", np.float32(number)))
        elif not isinstance(spec, nets.Add):
            operator, attributes = operator_of(spec)
            steps.append(Step(operator, self.arrays_of(layer), attributes))
        if layer.residual is not None:
            steps.append(Step("Add", [self.outputs[layer.residual]], word="add"))
        if getattr(spec, "relu", False):
            steps.append(Step("Relu", [], word="relu"))
        return steps

    def add_steps(self, layer: str, steps: list[Step]) -> None:
        for step in steps:
            name = f"{layer}/{step.word}" if step.word else layer
            self.nodes.append({"input": [self.outputs[layer], *step.inputs], "output": [f"{name}/output"],
                               "name": name, "op_type": step.operator,
                               "attribute": [attribute(key, one) for key, one in step.attributes.items()]})
            self.outputs[layer] = f"{name}/output"

    def arrays_of(self, layer: Layer) -> list[str]:
        return [self.array(f"{layer.name}/{kind}", self.checkpoint.array(place))
                for owner, kind, place in self.checkpoint.model.arrays() if owner is layer]

    def array(self, name: str, values: np.ndarray) -> str:
        self.arrays.append({"dims": list(values.shape), "data_type": FLOAT_ARRAY, "name": name,
                            "raw_data": values.astype("<f4").tobytes()})
        return name


def operator_of(spec: nets.Spec) -> tuple[str, dict]:
    """The first operator of a layer, and its attributes."""
    match spec:
        case nets.Conv2d():
            return "Conv", window(spec) | {"group": spec.groups, "dilations": [spec.dilation] * 2}
        case nets.MaxPool2d():
            return "MaxPool", window(spec)
        case nets.AveragePool2d():
            return "AveragePool", window(spec) | {"count_include_pad": 1}
        case nets.Linear():
            return "Gemm", {"transB": 1}
        case nets.BatchNorm():
            return "BatchNormalization", {"epsilon": float(spec.epsilon), "momentum": 1 - float(spec.momentum)}
        case nets.GlobalAveragePool():
            return "GlobalAveragePool", {}
        case nets.Dropout():
            return "Identity", {}
    raise AssertionError(f"no operator is known for {spec}")


def window(spec: nets.Conv2d | nets.MaxPool2d | nets.AveragePool2d) -> dict:
    return {"kernel_shape": [spec.kernel] * 2, "strides": [spec.stride] * 2, "pads": [spec.padding] * 4}


def attribute(name: str, given: int | float | list[int]) -> dict:
    field = {int: "i", float: "f", list: "ints"}[type(given)]
    return {"name": name, field: given, "type": ATTRIBUTE_KINDS[field]}


def value(name: str, extents: tuple[int | str, ...], meaning: str) -> dict:
    dims = [{"dim_param" if isinstance(extent, str) else "dim_value": extent} for extent in extents]
    return {"name": name, "type": {"tensor_type": {"elem_type": FLOAT_ARRAY, "shape": {"dim": dims}}},
            "doc_string": meaning}
