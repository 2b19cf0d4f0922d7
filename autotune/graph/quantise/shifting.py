"""Quantisation for accelerators that only shift: int8, one scale per tensor, `clip((sum >> shift) + bias)`.

Fixed-point inference of VTA's measured layers (Moreau et al., "VTA: An Open Hardware-Software Stack for Deep Learning",
2018). All scales are powers of two. A layer's shift truncates downwards and its bias, in steps of the output, is added
afterwards. So the bias includes half a step, the mean of the truncated part. The last layer stays in floats if its
output is read as floats: 8 bits would cost more accuracy than they save time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.config import Quantisation
from autotune.graph.ir import Array, Graph
from autotune.graph.ops.fixed_point import HIGH, LARGEST_SHIFT, LOW
from autotune.graph.passes.site import pair
from autotune.graph.quantise.arithmetic import LARGEST, NotExact
from autotune.graph.quantise.calibration import Calibration
from autotune.graph.quantise.formats import Signed, power_weights
from autotune.graph.quantise.rewriting import QuantisedGraph, Rewriting, skipped_layers
from autotune.graph.quantise.units import Unit, UnitRole, layers

SHIFT_OPS = {"conv2d": "shift_conv2d", "matmul": "shift_matmul"}
"""Layers in floats → layers on int8."""
_PLAIN = ("groups", "dilation")
"""Attributes that must be 1."""


@dataclass(frozen=True)
class ShiftPlan:
    """Integers of a layer `clip((sum >> shift) + bias)`.

    Attributes:
        weights: int8, one exponent for all channels.
        shift: 0 to 15.
        bias: int32, by channel, in steps of the output.
    """

    weights: Array
    shift: int
    bias: Array


def quantise_shift(graph: Graph, calibration: Calibration, options: Quantisation | None = None) -> QuantisedGraph:
    """Quantises a graph to layers that only shift; otherwise like `rewriting.quantise`.

    Args:
        graph: optimised graph in floats.
        calibration: calibration of this graph.
        options: quantisation options; `per_channel` and `least_decibels` are ignored, as a tensor has one scale.
    """
    options = options or Quantisation()
    skipped = skipped_layers(graph, calibration, options)
    for name in layers(graph):
        node = graph.node(name)
        assert node is not None
        if node.op not in SHIFT_OPS or any(np.any(np.array(node.attrs.get(attr, 1)) != 1) for attr in _PLAIN):
            skipped.setdefault(name, "its channels are in groups, or its window has gaps")
    last = _last(graph)
    for name in Shifting(graph, calibration, options, skipped).unread():
        if name in last:
            skipped[name] = "the last layer, its output is read as floats"
    return Shifting(graph, calibration, options, skipped).run()


def _last(graph: Graph) -> set[str]:
    """Collects the layers that are not followed by another layer."""
    last, names = set(), set(layers(graph))
    before: set[str] = set()  # values that a layer depends on
    for node in reversed(graph.nodes):
        if node.name in names and node.name not in before:
            last.add(node.name)
        if node.name in names or node.name in before:
            before.update(node.inputs)
    return last


def plan_shift(weight: Array, source: Signed, output: Signed, bias: Array) -> ShiftPlan:
    """Plans the integers of a layer.

    Args:
        weight: floats, last axis: channels.
        source, output: formats, `Signed`.
        bias: () or (channels,), float64.

    Raises:
        NotExact: the shift would be negative, or sums may exceed int32.
    """
    least = output.exponent - source.exponent - LARGEST_SHIFT  # coarser weights if the shift would be too large
    weights, exponent = power_weights(weight, least)
    shift = output.exponent - source.exponent - exponent
    if shift < 0:
        raise NotExact(f"the output's scale must not be finer than that of the sums, but it is by {-shift} bits")
    half = 0.5 if shift else 0.0
    steps = np.ldexp(np.broadcast_to(bias, weight.shape[-1:]), -output.exponent)
    rounded = np.floor(steps + half + 0.5)
    bound = -LOW * np.abs(weights.values.astype(np.int64)).reshape(-1, weight.shape[-1]).sum(0)
    if bound.max() > LARGEST or ((bound >> shift) + np.abs(rounded)).max() > LARGEST:
        raise NotExact(
            f"sums must be at most {LARGEST}, but could be {bound.max()}, with a bias of {np.abs(rounded).max():g}"
        )
    return ShiftPlan(weights.values, shift, rounded.astype(np.int32))


class Shifting(Rewriting):
    """A walk over the units of a graph, see `Rewriting`; all formats are `Signed`."""

    residuals = False
    signed = True

    def unread(self) -> Sequence[str]:
        """Lists the layers whose output is never read in bytes."""
        found = [unit for unit in self.units if unit.part is UnitRole.layer and self._output(unit) is None]
        return [unit.nodes[0].name for unit in found]

    def _layer(self, unit: Unit) -> None:
        node = unit.nodes[0]
        (data,) = unit.data
        output, source = self.format(unit.output.name), self.format(data)
        assert isinstance(output, Signed) and isinstance(source, Signed)
        planned = plan_shift(self.graph.constants[node.inputs[1]], source, output, unit.bias)
        low, high = (int(b) for b in output.encode(np.array([unit.low, unit.high])))
        attrs: dict[str, Any] = {"shift": planned.shift, "relu": low >= 0}
        if node.op == "conv2d":
            attrs |= {"stride": pair(node.attrs["stride"]), "padding": node.attrs["padding"]}
        weight = self.builder.constant(planned.weights, node.inputs[1])
        inputs = [self.byte(data), weight, self.constant(planned.bias)]
        whole = (low, high) in ((LOW, HIGH), (0, HIGH))
        value = self.builder.add(SHIFT_OPS[node.op], inputs, unit.output.name if whole else "", **attrs)
        name = unit.output.name
        self.bytes[name] = value if whole else self.add_limit(value, name, (low, high), output.dtype)

    def _average(self, unit: Unit) -> None:
        if self._output(unit) is not None:
            raise NotExact("a mean is no sum that is shifted")
        super()._average(unit)
