"""Tutti's networks in plain PyTorch, layer for layer with the same names, for comparisons."""

from collections import OrderedDict
from typing import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, max_pool2d, relu


def rectified(layer: nn.Module, x: Tensor, residual: Tensor | None = None) -> Tensor:
    y = layer(x)
    if residual is not None:
        y += residual
    return relu(y, inplace=True)


def max_pooled(x: Tensor, kernel: int, stride: int, padding: int = 0) -> Tensor:
    return max_pool2d(x, kernel, stride, padding)


class Lenet(nn.Module):
    def __init__(self, shape: tuple[int, int, int], classes: int):
        super().__init__()
        channels, height, width = shape
        rows, columns = (((extent - 2) // 2 - 4) // 2 for extent in (height, width))
        self.conv1 = nn.Conv2d(channels, 20, 3)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.dense1 = nn.Linear(50 * rows * columns, 128)
        self.dense2 = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = max_pooled(rectified(self.conv1, x), 2, 2)
        x = max_pooled(rectified(self.conv2, x), 2, 2)
        return self.dense2(rectified(self.dense1, x.flatten(1)))


def conv(inputs: int, outputs: int, kernel: int, *, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class Residual(nn.Module):
    """Two 3x3 convolutions; a 1x1 convolution without a norm as shortcut where the shape changes."""

    EXPANSION = 1

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.conv1 = conv(inputs, width, 3, stride=stride)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3)
        self.norm2 = nn.BatchNorm2d(width)
        changes = stride != 1 or inputs != width
        self.shortcut = conv(inputs, width, 1, stride=stride) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = rectified(self.norm1, self.conv1(x))
        return rectified(self.norm2, self.conv2(y), self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 with the stride, 1x1 to four times the width; the shortcut has its own norm."""

    EXPANSION = 4

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        outputs = self.EXPANSION * width
        self.conv1 = conv(inputs, width, 1)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3, stride=stride)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = conv(width, outputs, 1)
        self.norm3 = nn.BatchNorm2d(outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = conv(inputs, outputs, 1, stride=stride) if changes else nn.Identity()
        self.shortcut_norm = nn.BatchNorm2d(outputs) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = rectified(self.norm1, self.conv1(x))
        y = rectified(self.norm2, self.conv2(y))
        return rectified(self.norm3, self.conv3(y), self.shortcut_norm(self.shortcut(x)))


class Resnet(nn.Module):
    """For small images with residual blocks (3x3 stem, stride 1), for large ones with bottlenecks (7x7 and pooling)."""

    def __init__(self, block: type, blocks: tuple[int, ...], channels: int, classes: int):
        super().__init__()
        small = block is Residual
        self.stem = nn.Module()
        self.stem.conv = conv(channels, 64, 3) if small else conv(channels, 64, 7, stride=2)
        self.stem.norm = nn.BatchNorm2d(64)
        self.pools_stem = not small
        inputs = 64
        self.stages: list[str] = []
        for number, count in enumerate(blocks, 1):
            width = 32 << number
            stage = OrderedDict()
            for i in range(1, count + 1):
                stage[f"block{i}"] = block(inputs, width, 2 if number > 1 and i == 1 else 1)
                inputs = width * block.EXPANSION
            self.stages.append(f"stage{number}")
            self.add_module(self.stages[-1], nn.Sequential(stage))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = rectified(self.stem.norm, self.stem.conv(x))
        if self.pools_stem:
            x = max_pooled(x, 3, 2, padding=1)
        for stage in self.stages:
            x = getattr(self, stage)(x)
        return self.head(self.pool(x).flatten(1))


def without_scale(features: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(features, eps=1e-12, momentum=0.4)
    norm.weight.requires_grad = False
    return norm


class CifarNet(nn.Module):
    def __init__(self, shape: tuple[int, int, int], classes: int):
        super().__init__()
        self.whiten = nn.Conv2d(shape[0], 24, 2)
        self.whiten.weight.requires_grad = False
        self.blocks = []
        for inputs, width in ((24, 64), (64, 256), (256, 256)):
            block = nn.Module()
            block.conv1, block.norm1 = conv(inputs, width, 3), without_scale(width)
            block.conv2, block.norm2 = conv(width, width, 3), without_scale(width)
            self.blocks.append(f"block{len(self.blocks) + 1}")
            self.add_module(self.blocks[-1], block)
        self.head = nn.Linear(256, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = gelu(self.whiten(x))
        for name in self.blocks:
            block = getattr(self, name)
            x = gelu(block.norm1(max_pooled(block.conv1(x), 2, 2)))
            x = gelu(block.norm2(block.conv2(x)))
        return self.head(max_pooled(x, 3, 3).flatten(1)) / 9


class ConvnextBlock(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.expand = nn.Conv2d(width, 4 * width, 1)
        self.project = nn.Conv2d(4 * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.project(gelu(self.expand(self.norm(self.depthwise(x)))))


class Convnext(nn.Module):
    def __init__(self, shape: tuple[int, int, int], classes: int):
        super().__init__()
        stages = []
        for number, (inputs, width) in enumerate(((shape[0], 64), (64, 128)), 1):
            layers = {"conv": nn.Conv2d(inputs, width, 2, 2, bias=False), "norm": nn.BatchNorm2d(width),
                      "block1": ConvnextBlock(width), "block2": ConvnextBlock(width)}
            stages.append((f"stage{number}", nn.Sequential(OrderedDict(layers))))
        for name, stage in stages:
            self.add_module(name, stage)
        self.head = nn.Linear(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stage2(self.stage1(x)).mean((2, 3)))


def mobilenet(shape: tuple[int, int, int], classes: int) -> nn.Module:
    from torchvision.models import mobilenet_v2
    return mobilenet_v2(num_classes=classes, dropout=0)


NETWORKS = {
    "lenet": Lenet,
    "cifar-net": CifarNet,
    "convnext-bn": Convnext,
    "mobilenet_v2": mobilenet,
    "resnet18": lambda shape, classes: Resnet(Residual, (2, 2, 2, 2), shape[0], classes),
    "resnet34": lambda shape, classes: Resnet(Residual, (3, 4, 6, 3), shape[0], classes),
    "resnet50": lambda shape, classes: Resnet(Bottleneck, (3, 4, 6, 3), shape[0], classes),
}


def make_network(name: str, shape: tuple[int, int, int], classes: int) -> nn.Module:
    if name not in NETWORKS:
        raise SystemExit(f"no network is called '{name}': give one of {', '.join(NETWORKS)}")
    return NETWORKS[name](shape, classes)


def named_tensors(network: nn.Module, statistics: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Parameters, or running statistics, under Tutti's names: stage1.block1.norm1/scale."""
    for name, layer in network.named_modules():
        if isinstance(layer, nn.BatchNorm2d):
            if statistics:
                yield from ((f"{name}/mean", layer.running_mean), (f"{name}/variance", layer.running_var))
            else:
                yield from ((f"{name}/scale", layer.weight), (f"{name}/shift", layer.bias))
        elif isinstance(layer, (nn.Conv2d, nn.Linear)) and not statistics:
            yield f"{name}/weight", layer.weight
            if layer.bias is not None:
                yield f"{name}/bias", layer.bias
