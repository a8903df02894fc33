"""Functions of single values: what they are in ONNX and in PyTorch."""

import dataclasses
from typing import Callable


@dataclasses.dataclass(frozen=True)
class Step:
    """An operator of ONNX. Its first input is the output of the step before."""
    operator: str
    inputs: list[str]  # in addition to that
    attributes: dict = dataclasses.field(default_factory=dict)
    word: str = ""  # suffix of its name, unless it is the layer's main operator


Scalar = Callable[[str, float], str]  # makes an array of one value and returns its name


@dataclasses.dataclass(frozen=True)
class Function:
    steps: Callable[[str, float, Scalar], list[Step]]  # for the layer's input, its factor and Scalar
    torch: str = ""  # of torch.nn.functional; empty: the product with a factor

    def takes_factor(self) -> bool:
        return not self.torch


def gelu_steps(given: str, _: float, scalar: Scalar) -> list[Step]:
    return [Step("Mul", [scalar("root", 0.5**0.5)], word="scaled"), Step("Erf", [], word="erf"),
            Step("Add", [scalar("one", 1)], word="shifted"), Step("Mul", [given], word="product"),
            Step("Mul", [scalar("half", 0.5)])]


FUNCTIONS = {
    "relu6": Function(lambda given, factor, scalar: [Step("Clip", [scalar("least", 0), scalar("greatest", 6)])],
                      "relu6"),
    "gelu": Function(gelu_steps, "gelu"),
    "silu": Function(lambda given, factor, scalar: [Step("Sigmoid", [], word="sigmoid"), Step("Mul", [given])], "silu"),
    "scale": Function(lambda given, factor, scalar: [Step("Mul", [scalar("factor", factor)])])}
