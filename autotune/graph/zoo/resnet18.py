"""ResNet-18 (He et al., "Deep Residual Learning for Image Recognition", 2015)."""

from __future__ import annotations

import onnx

from autotune.graph.zoo.network import Network

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels and first stride of each stage of two blocks."""


def build(seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000) -> onnx.ModelProto:
    """Builds the network from images (batch, 3, size, size) to logits (batch, classes)."""
    net = Network("resnet18", seed)
    x = net.add("Relu", net.conv(net.input("image", (batch, 3, size, size)), 3, 64, 7, 2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for outputs, first in STAGES:
        for stride in (first, 1):
            x = _block(net, x, channels, outputs, stride)
            channels = outputs
    return net.finish(net.classifier(x, channels, classes), (batch, classes))


def _block(net: Network, x: str, inputs: int, outputs: int, stride: int) -> str:
    """Adds two 3x3 convolutions and a residual connection around them."""
    inner = net.add("Relu", net.conv(x, inputs, outputs, 3, stride))
    main = net.conv(inner, outputs, outputs, 3, gain=1.0)
    around = x if inputs == outputs and stride == 1 else net.conv(x, inputs, outputs, 1, stride, gain=1.0)
    return net.add("Relu", net.add("Add", main, around))
