"""The layers of ResNet-18 that were measured on a PYNQ, with the knobs they were measured with (TopHub v0.06)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.vta_template.conv import Conv2d, ConvProgram, Knobs, lower
from targets.vta.hardware import VtaHardware


@dataclass(frozen=True)
class MeasuredLayer:
    """A layer and the cycles at 100 MHz that a PYNQ took for it."""

    name: str
    conv: Conv2d
    knobs: Knobs
    cycles: int


def _conv(size: int, inputs: int, outputs: int, kernel: int, stride: int) -> Conv2d:
    return Conv2d(size, size, inputs, outputs, kernel, stride, kernel // 2)


LAYERS: tuple[MeasuredLayer, ...] = (
    MeasuredLayer("C2", _conv(56, 64, 64, 3, 1), Knobs(8, 56, 1, 2, 2, 1), 569_933),
    MeasuredLayer("C3", _conv(56, 64, 128, 3, 2), Knobs(7, 28, 1, 4, 2, 1), 296_553),
    MeasuredLayer("C4", _conv(56, 64, 128, 1, 2), Knobs(7, 28, 1, 4, 1, 2), 134_872),
    MeasuredLayer("C5", _conv(28, 128, 128, 3, 1), Knobs(14, 28, 1, 2, 1, 2), 518_339),
    MeasuredLayer("C6", _conv(28, 128, 256, 3, 2), Knobs(14, 14, 1, 4, 2, 1), 266_909),
    MeasuredLayer("C7", _conv(28, 128, 256, 1, 2), Knobs(7, 14, 1, 8, 2, 1), 102_877),
    MeasuredLayer("C8", _conv(14, 256, 256, 3, 1), Knobs(14, 14, 1, 4, 2, 1), 493_359),
    MeasuredLayer("C9", _conv(14, 256, 512, 3, 2), Knobs(7, 7, 1, 16, 2, 1), 399_373),
    MeasuredLayer("C10", _conv(14, 256, 512, 1, 2), Knobs(7, 7, 1, 16, 2, 1), 108_090),
    MeasuredLayer("C11", _conv(7, 512, 512, 3, 1), Knobs(7, 7, 1, 16, 2, 1), 734_808),
)


def operands(conv: Conv2d, draw: np.random.Generator) -> tuple[NDArray[np.int8], NDArray[np.int8], NDArray[np.int32]]:
    """Draws random data, weights and bias."""
    data = draw.integers(-128, 128, (conv.batch, conv.in_channels, conv.height, conv.width), dtype=np.int8)
    shape = (conv.out_channels, conv.in_channels, conv.kernel, conv.kernel)
    weights = draw.integers(-128, 128, shape, dtype=np.int8)
    return data, weights, draw.integers(-60, 60, conv.out_channels, dtype=np.int32)


def program(layer: MeasuredLayer, hardware: VtaHardware, seed: int = 0) -> ConvProgram:
    """Lowers the layer on random operands."""
    return lower(layer.conv, layer.knobs, hardware, *operands(layer.conv, np.random.default_rng(seed)))
