"""From a graph in floats to one whose layers work on bytes: where bytes are used, and the integer nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from autotune.config import Quantisation
from autotune.graph.ir import Builder, Graph, GraphError, Node, without_unread_constants
from autotune.graph.ops.quantised import RANGES
from autotune.graph.passes.dead_code import dead_code
from autotune.graph.passes.site import pair
from autotune.graph.quantise.arithmetic import NotExact, Sum, plan_average, plan_layer, plan_sum
from autotune.graph.quantise.calibration import Calibration
from autotune.graph.quantise.formats import Format
from autotune.graph.quantise.noise import layer_decibels
from autotune.graph.quantise.products import padded_bytes, sum_of_products
from autotune.graph.quantise.units import Part, Unit, layers, units, window_of_means


@dataclass(frozen=True, eq=False)
class Quantised:
    """A quantised graph.

    Attributes:
        graph: with integer nodes; inputs and outputs are those of the float graph.
        formats: of the values of the float graph that are bytes now.
        names: of those values in `graph`.
        layers: how many layers work on bytes.
        left_float: names of the layers that do not, and why.
        stored: what layers are stored in.
    """

    graph: Graph
    formats: Mapping[str, Format]
    names: Mapping[str, str]
    layers: int
    left_float: Mapping[str, str] = field(default_factory=dict)
    stored: str = "int8"


def quantise(graph: Graph, calibration: Calibration, options: Quantisation | None = None) -> Quantised:
    """The graph in integers.

    Args:
        graph: in floats, optimised: batch normalisation folded, channels last.
        calibration: of this graph.
        options: by default all layers that keep 25 dB, a scale a channel.

    Raises:
        GraphError: no layer with constant weights, or a calibration of another graph.
        ValueError: an unknown method or layer.
    """
    options = options or Quantisation()
    skipped = skipped_layers(graph, calibration, options)
    for name in layers(graph):
        node = graph.node(name)
        assert node is not None
        found = layer_decibels(graph, node, calibration, options.method, options.per_channel)
        if found < options.least_decibels:
            skipped.setdefault(name, f"its output would have {found:.1f} dB in bytes")
    return Rewriting(graph, calibration, options, skipped).run()


def skipped_layers(graph: Graph, calibration: Calibration, options: Quantisation) -> dict[str, str]:
    """Names of the layers that stay in floats as the options say, and why.

    Raises:
        GraphError, ValueError: as `quantise` says.
    """
    found = layers(graph)
    if not found:
        raise GraphError(f"a graph to quantise must have a layer with constant weights, but {graph.name} has none")
    values = [*graph.inputs, *graph.constants, *(node.name for node in graph.nodes)]
    floats = [name for name in values if graph.type(name).dtype == "float32" and graph.type(name).size]
    if missing := [name for name in floats if name not in calibration.observed]:
        raise GraphError(f"`calibration` must be of the graph to quantise, but it lacks {missing[0]!r}")
    if unknown := [name for name in options.floats if name not in found]:
        raise ValueError(f"`floats` must be layers of {graph.name} ({', '.join(found)}), but got {unknown[0]!r}")
    skipped = dict.fromkeys(options.floats, "so the options say")
    if not options.first:
        skipped[found[0]] = "the first layer"
    if not options.last:
        skipped[found[-1]] = "the last layer"
    return skipped


class _Classes:
    """Values that have one format, or that are bytes or floats together: a union-find over names."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def find(self, name: str) -> str:
        while (above := self._parent.get(name, name)) != name:
            name = above
        return name

    def join(self, names: Sequence[str]) -> None:
        for name in names[1:]:
            self._parent[self.find(name)] = self.find(names[0])


class Rewriting:
    """One walk over the units of a graph.

    Args:
        graph: in floats.
        calibration: of it.
        options: how it is quantised.
        skipped: names of layers that stay in floats, and why.
    """

    residuals = True
    """Whether a layer ends with the addition of a residual."""
    signed = False
    """Whether bytes are int8 with a zero of 0."""

    def __init__(self, graph: Graph, calibration: Calibration, options: Quantisation, skipped: dict[str, str]) -> None:
        self.graph, self.calibration, self.options = graph, calibration, options
        self.left_float = dict(skipped)
        self.units = units(graph, skipped, self.residuals)
        self.builder = Builder(graph.name, graph.inputs, graph.output_names)
        self.floats: dict[str, str] = {name: name for name in graph.inputs}
        self.bytes: dict[str, str] = {}
        self.formats: dict[str, Format] = {}
        self.layers = 0
        for name, array in graph.constants.items():
            self.floats[name] = self.builder.constant(array, name)
        self._decide()

    def _decide(self) -> None:
        """Which units work on bytes: layers, and what leads to the data of one; which values are read as bytes.

        What only floats are made of stays in floats: bytes would cost accuracy and save nothing.
        """
        same = _Classes()
        self.active: set[Unit] = set()
        self.wanted: set[str] = set()
        for unit in reversed(self.units):
            read = unit.output.name in self.wanted
            if unit.part is Part.layer:
                self.active.add(unit)
                self.wanted.update(unit.data if read else unit.data[:1])
            elif unit.part is not Part.other and read:
                self.active.add(unit)
                self.wanted.update(unit.data)
        if self.signed:  # layers always give bytes there, so what is made of them alone costs nothing
            self._made_of_bytes()
        self.members: dict[str, list[str]] = {}
        for unit in self.active:
            if unit.part is Part.move:
                same.join([*unit.data, unit.output.name])
        self._same = same
        for name in [*self.graph.inputs, *self.graph.constants, *(node.name for node in self.graph.nodes)]:
            self.members.setdefault(same.find(name), []).append(name)

    def _made_of_bytes(self) -> None:
        made = {unit.output.name for unit in self.active} | set(self.graph.constants)
        for unit in self.units:
            if unit.part is not Part.other and made.issuperset(unit.data):
                self.active.add(unit)
                self.wanted.update(unit.data)
                made.add(unit.output.name)

    def run(self) -> Quantised:
        for unit in self.units:
            if unit in self.active:
                try:
                    self._visit(unit)
                    self.layers += unit.part is Part.layer
                    continue
                except NotExact as error:
                    self.left_float[unit.nodes[0].name] = str(error)
            for node in unit.nodes:
                self._as_it_is(node)
        outputs = [self.float(name) for name in self.graph.outputs]
        graph = without_unread_constants(dead_code(self.builder.finish(outputs)))
        kept = {node.name for node in graph.nodes}
        names = {old: new for old, new in self.bytes.items() if new in kept}
        return Quantised(graph, {old: self.format(old) for old in names}, names, self.layers, self.left_float)

    # ------------------------------------------------------------------ values
    def format(self, name: str) -> Format:
        """Of a value that is bytes."""
        root = self._same.find(name)
        if root not in self.formats:
            self.formats[root] = self.calibration.format(self.members[root], self.options.method, self.signed)
        return self.formats[root]

    def float(self, name: str) -> str:
        """The value in floats."""
        if name not in self.floats:
            at = self.format(name)
            source = self.bytes[name]
            numbers = [self.constant([at.scale], np.float32), self.constant([at.zero], at.dtype)]
            self.floats[name] = self.builder.add("dequantise", [source, *numbers])
        return self.floats[name]

    def byte(self, name: str) -> str:
        """The value in bytes."""
        if name not in self.bytes:
            at = self.format(name)
            if name in self.graph.constants:
                self.bytes[name] = self.builder.constant(at.encode(self.graph.constants[name]), name)
            else:
                source = self.float(name)
                numbers = [self.constant([at.inverse], np.float32), self.constant([at.zero], at.dtype)]
                self.bytes[name] = self.builder.add("quantise", [source, *numbers], dtype=at.dtype)
        return self.bytes[name]

    def constant(self, array: ArrayLike, dtype: Any = np.int32) -> str:
        return self.builder.constant(np.asarray(array).astype(dtype), "constant")

    def _as_it_is(self, node: Node) -> None:
        inputs = [self.float(name) for name in node.inputs]
        self.floats[node.name] = self.builder.add(node.op, inputs, node.name, **node.attrs)

    # ------------------------------------------------------------------ units
    def _visit(self, unit: Unit) -> None:
        if unit.part is Part.layer:
            self._layer(unit)
        elif unit.part is Part.average:
            self._average(unit)
        elif unit.part is Part.move:
            self._move(unit)
        else:
            self._add(unit)

    def _output(self, unit: Unit) -> Format | None:
        """The format of the unit's value; None where nothing reads it as bytes."""
        return self.format(unit.output.name) if unit.output.name in self.wanted else None

    def _end(self, unit: Unit, value: str, end: Sum, inputs: Sequence[str], added: Sequence[str] = ()) -> None:
        """The nodes from a sum to the unit's value; `inputs` are residuals in bytes, `added` those in floats."""
        name = unit.output.name
        if np.any(end.left):
            value = self.builder.add("shift_left", [value, self.constant(end.left)])
        for residual, factor in zip(inputs, end.factors, strict=True):
            value = self.builder.add("add_widened", [value, residual, self.constant(factor)])
        if end.format is not None:
            operands = [value, self.constant(end.bias), self.constant(end.scales, np.float32)]
            self.bytes[name] = self._requantised(name, operands, (end.low, end.high), end.format.dtype)
            return
        if np.any(end.bias):
            value = self.builder.add("add", [value, self.constant(end.bias)])
        scale = self.constant(end.scales, np.float32)
        limited = np.isfinite([unit.low, unit.high]).any()
        value = self.builder.add("dequantise_sum", [value, scale], "" if limited or added else name)
        for residual in added:
            value = self.builder.add("add", [value, self.float(residual)], "" if limited else name)
        if limited:
            value = self.builder.add("clip", [value], name, low=unit.low, high=unit.high)
        self.floats[name] = value

    def _requantised(self, name: str, operands: Sequence[str], limits: tuple[int, int], dtype: str) -> str:
        """A sum as bytes of that name, between limits, which are inputs where they are not the ends of all bytes."""
        low, high = RANGES[dtype]
        whole = limits == (low, high)
        value = self.builder.add("requantise", operands, name if whole else "", low=low, high=high, dtype=dtype)
        if whole:
            return value
        return self.builder.add("limit", [value, *(self.constant([end], dtype) for end in limits)], name)

    def _layer(self, unit: Unit) -> None:
        node = unit.nodes[0]
        data, *residuals = unit.data
        source, weight, output = self.format(data), self.graph.constants[node.inputs[1]], self._output(unit)
        added = residuals if output is not None else []  # floats are added as floats
        weights, end = plan_layer(
            weight,
            source,
            self.format(added[0]) if added else None,
            output,
            unit.bias,
            (unit.low, unit.high),
            self.options.per_channel,
        )
        inputs = [self.byte(name) for name in (data, *added)]
        value = sum_of_products(self.builder, node, inputs[0], weights.values, source)
        self._end(unit, value, end, inputs[1:], residuals[len(added) :])

    def _add(self, unit: Unit) -> None:
        """A sum of bytes, or one operand brought to another scale."""
        limits = (unit.low, unit.high)
        end = plan_sum(tuple(self.format(n) for n in unit.data), self._output(unit), unit.bias, limits)
        first, *rest = [self.byte(name) for name in unit.data]
        value = self.builder.add("widen", [first, self.constant(end.factors[0])])
        self._end(unit, value, replace(end, factors=end.factors[1:]), rest)

    def _average(self, unit: Unit) -> None:
        (node,) = unit.nodes
        (data,) = unit.data
        window = window_of_means(self.graph, node)
        assert window is not None
        source = self.format(data)
        if source.zero and np.any(window["padding"]):
            raise NotExact("padding of signed values counts in its mean")
        factor, end = plan_average(prod(pair(window["kernel"])), source, self._output(unit))
        value = self.builder.add("sum_pool2d", [self.byte(data)], **window)
        if factor != 1:
            value = self.builder.add("multiply", [value, self.constant(np.array([factor]))])
        self._end(unit, value, end, [])
        kept = self.floats if end.format is None else self.bytes
        if self.graph.type(node.name).shape != self.builder.type(kept[node.name]).shape:
            kept[node.name] = self.builder.add("reshape", [kept[node.name]], shape=node.type.shape)

    def _move(self, unit: Unit) -> None:
        (node,) = unit.nodes
        attrs = dict(node.attrs)
        inputs = [self.byte(name) for name in node.inputs]
        if node.op == "pad":
            value = padded_bytes(
                self.builder, inputs[0], attrs["before"], attrs["after"], self.format(node.name), node.name
            )
        else:
            value = self.builder.add(node.op, inputs, node.name, **attrs)
        self.bytes[node.name] = value
