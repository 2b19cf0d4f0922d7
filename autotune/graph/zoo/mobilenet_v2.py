"""MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018)."""

from __future__ import annotations

import onnx

from autotune.graph.zoo.network import Network

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, blocks and first stride of each stage."""


def build(seed: int = 0, batch: int = 1, size: int = 224, classes: int = 1000) -> onnx.ModelProto:
    """Builds the network from images (batch, 3, size, size) to logits (batch, classes)."""
    net = Network("mobilenet_v2", seed)
    low, high = net.number(0.0), net.number(6.0)

    def relu6(x: str) -> str:
        return net.add("Clip", x, low, high)

    x = relu6(net.conv(net.input("image", (batch, 3, size, size)), 3, 32, 3, 2))
    channels = 32
    for expansion, outputs, blocks, first in STAGES:
        for block in range(blocks):
            stride = first if block == 0 else 1
            wide = channels * expansion
            inner = x if expansion == 1 else relu6(net.conv(x, channels, wide, 1))
            inner = relu6(net.conv(inner, wide, wide, 3, stride, groups=wide))
            out = net.conv(inner, wide, outputs, 1, gain=1.0)
            x = net.add("Add", x, out) if stride == 1 and channels == outputs else out
            channels = outputs
    x = relu6(net.conv(x, channels, 1280, 1))
    return net.finish(net.classifier(x, 1280, classes), (batch, classes))
