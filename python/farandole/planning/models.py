# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
"""The gradients of well-known models: how large, and when in the backward pass each is ready.

Shapes come from the layers' definitions, so that the number of parameters is that of the source.
A layer takes time as it has floating-point operations, the backward pass twice as many as the
forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from farandole.errors import InvalidArgumentError


@dataclass(frozen=True)
class Layer:
    """Parameters that become ready at once, and what the forward pass of a sample costs."""

    parameters: tuple[int, ...]  # elements of each tensor
    operations: float  # floating-point, of one sample


@dataclass(frozen=True)
class Model:
    """Layers in the order of the forward pass, with the source of their shapes."""

    name: str
    source: str
    layers: tuple[Layer, ...]

    @property
    def parameter_count(self) -> int:
        return sum(sum(layer.parameters) for layer in self.layers)

    @property
    def tensor_count(self) -> int:
        return sum(len(layer.parameters) for layer in self.layers)

    @property
    def operations(self) -> float:
        """Floating-point, of forward and backward pass of one sample."""
        return 3.0 * sum(layer.operations for layer in self.layers)


@dataclass(frozen=True)
class Gradient:
    """One tensor, and when it is ready, as a share of forward and backward pass together."""

    elements: int
    ready: float


def gradients(model: Model) -> list[Gradient]:
    """In the order in which the backward pass makes them: the last layer's first."""
    whole = sum(layer.operations for layer in model.layers)
    done = whole  # the forward pass
    found = []
    for layer in reversed(model.layers):
        done += 2.0 * layer.operations
        ready = min(1.0, done / (3.0 * whole))
        found += [Gradient(elements, ready) for elements in reversed(layer.parameters)]
    return found


@dataclass
class _Images:
    """Builds a convolutional network, keeping track of channels and pixels."""

    channels: int
    pixels: int  # of one side
    layers: list[Layer] = field(default_factory=list)

    def convolution(
        self,
        channels: int,
        kernel: int,
        stride: int = 1,
        *,
        padding: int | None = None,
        groups: int = 1,
        bias: bool = False,
        norm: bool = True,
    ) -> None:
        padding = kernel // 2 if padding is None else padding
        self.pixels = (self.pixels + 2 * padding - kernel) // stride + 1
        self._convolve(channels, self.channels // groups * kernel**2, self.pixels, bias)
        if norm:
            self.norm()

    def upsampling(self, channels: int, kernel: int = 3) -> None:
        """A transposed convolution of stride 2."""
        self._convolve(channels, self.channels * kernel**2, self.pixels, bias=True)
        self.pixels *= 2

    def _convolve(self, channels: int, weights: int, pixels: int, bias: bool) -> None:
        parameters = (channels * weights, *([channels] if bias else []))
        self.layers.append(Layer(parameters, 2.0 * channels * weights * pixels**2))
        self.channels = channels

    def norm(self) -> None:
        operations = 4.0 * self.channels * self.pixels**2
        self.layers.append(Layer((self.channels, self.channels), operations))

    def pool(self, kernel: int = 2, stride: int = 2, padding: int = 0) -> None:
        self.pixels = (self.pixels + 2 * padding - kernel) // stride + 1

    def dense(self, *widths: int) -> None:
        inputs = self.channels * self.pixels**2
        for width in widths:
            self.layers.append(Layer((inputs * width, width), 2.0 * inputs * width))
            inputs = width


def _alexnet() -> Iterable[Layer]:
    net = _Images(3, 224)
    net.convolution(64, 11, 4, padding=2, bias=True, norm=False)
    net.pool(3)
    net.convolution(192, 5, bias=True, norm=False)
    net.pool(3)
    for channels in (384, 256, 256):
        net.convolution(channels, 3, bias=True, norm=False)
    net.pool(3)
    net.dense(4096, 4096, 1000)
    return net.layers


def _vgg(depths: tuple[int, ...]) -> Iterable[Layer]:
    net = _Images(3, 224)
    for depth, channels in zip(depths, (64, 128, 256, 512, 512), strict=True):
        for _ in range(depth):
            net.convolution(channels, 3, bias=True, norm=False)
        net.pool()
    net.dense(4096, 4096, 1000)
    return net.layers


def _resnet50() -> Iterable[Layer]:
    net = _Images(3, 224)
    net.convolution(64, 7, 2)
    net.pool(3, 2, 1)
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            before = net.channels, net.pixels
            net.convolution(width, 1)
            net.convolution(width, 3, stride)
            net.convolution(4 * width, 1)
            if block == 0:
                after = net.pixels
                net.channels, net.pixels = before
                net.convolution(4 * width, 1, stride)
                assert net.pixels == after
    net.pixels = 1
    net.dense(1000)
    return net.layers


def _efficientnet_b0() -> Iterable[Layer]:
    net = _Images(3, 224)
    net.convolution(32, 3, 2)
    stages = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)]
    stages += [(6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)]
    for expansion, channels, blocks, first_stride, kernel in stages:
        for block in range(blocks):
            inputs = net.channels
            if expansion > 1:
                net.convolution(expansion * inputs, 1)
            wide = net.channels
            net.convolution(wide, kernel, first_stride if block == 0 else 1, groups=wide)
            pixels, net.pixels = net.pixels, 1  # squeeze and excitation
            net.convolution(max(1, inputs // 4), 1, bias=True, norm=False)
            net.convolution(wide, 1, bias=True, norm=False)
            net.pixels = pixels
            net.convolution(channels, 1)
    net.convolution(1280, 1)
    net.pixels = 1
    net.dense(1000)
    return net.layers


def _dense_fcn(growth: int) -> Iterable[Layer]:
    """A fully convolutional dense network with 103 convolutions on images of 256 x 256."""
    net = _Images(3, 256)
    net.convolution(48, 3, bias=True, norm=False)

    def block(depth: int, keep: bool) -> None:
        inputs = net.channels
        for layer in range(depth):
            net.channels = inputs + layer * growth
            net.norm()
            net.convolution(growth, 3, bias=True, norm=False)
        net.channels = depth * growth + (inputs if keep else 0)

    skipped = []
    depths = (4, 5, 7, 10, 12)
    for depth in depths:
        block(depth, keep=True)
        skipped.append(net.channels)
        net.norm()
        net.convolution(net.channels, 1, bias=True, norm=False)
        net.pool()
    block(15, keep=False)
    for depth in reversed(depths):
        net.upsampling(net.channels)
        net.channels += skipped.pop()
        block(depth, keep=False)
    net.convolution(1, 1, bias=True, norm=False)
    return net.layers


def _gpt(depth: int, width: int, vocabulary: int = 50257, context: int = 1024) -> Iterable[Layer]:
    """Token and position embeddings first, the former also the output layer's weights."""
    norm = Layer((width, width), 8.0 * width * context)

    def dense(inputs: int, outputs: int, extra: float = 0.0) -> Layer:
        return Layer((inputs * outputs, outputs), 2.0 * inputs * outputs * context + extra)

    attention = 4.0 * width * context**2  # scores and their products with values
    blocks = [
        norm,
        dense(width, 3 * width),
        dense(width, width, attention),
        norm,
        dense(width, 4 * width),
        dense(4 * width, width),
    ]
    # Its gradient is complete when that of the embedding is, at the very end.
    output = Layer((), 2.0 * vocabulary * width * context)
    embedding = Layer((vocabulary * width, context * width), 2.0 * width * context)
    return [embedding, *blocks * depth, norm, output]


_MODELS: dict[str, tuple[str, Callable[[], Iterable[Layer]]]] = {
    "alexnet": ("[Krizhevsky14], one tower", _alexnet),
    "vgg16": ("[Simonyan15] table 1, D", lambda: _vgg((2, 2, 3, 3, 3))),
    "vgg19": ("[Simonyan15] table 1, E", lambda: _vgg((2, 2, 4, 4, 4))),
    "resnet50": ("[He16] table 1", _resnet50),
    "efficientnet-b0": ("[Tan19] table 1", _efficientnet_b0),
    "fcn-220m": (
        "[Romero22]: fully convolutional, dense, 220 million parameters; the layers are those of "
        "[Jegou17], table 2, with a growth rate that gives this number (assumed)",
        lambda: _dense_fcn(81),
    ),
    "gpt2": ("[Radford19], 12 blocks of width 768", lambda: _gpt(12, 768)),
    "gpt2-xl": ("[Radford19], 48 blocks of width 1600", lambda: _gpt(48, 1600)),
}
MODEL_NAMES = tuple(_MODELS)


def model(name: str) -> Model:
    """One of MODEL_NAMES.

    Errors   InvalidArgumentError naming those there are.
    """
    if name not in _MODELS:
        raise InvalidArgumentError(f"model is '{name}', allowed are {', '.join(MODEL_NAMES)}")
    source, build = _MODELS[name]
    return Model(name, source, tuple(build()))


def equal_groups(found: list[Gradient], group_count: int) -> list[int]:
    """The group of each gradient: `group_count` of about equal bytes, in the order of readiness."""
    whole = sum(gradient.elements for gradient in found)
    groups, before = [], 0
    for gradient in found:
        middle = before + gradient.elements / 2
        groups.append(min(group_count - 1, math.floor(middle / whole * group_count)))
        before += gradient.elements
    return groups
