"""Models quantised elsewhere: layers between `dequantise` and `quantise_linear` as sums of byte products.

A layer on bytes whose weights are multiples of a scale (`multiples`) sums its products in int32. The model's floats
would round each sum. The nodes behind it stay as in the model, in float32 and in its order. A bias of whole steps,
limits and the rounding to bytes become `requantise`. Operations that only move bytes stay on bytes.

int8 data and their zeros are stored as uint8 with 128 added, as dot products need them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autotune.graph.ir import Array, Graph, Node
from autotune.graph.ops import Kind, find
from autotune.graph.ops.quantised import RANGES, exact_scale
from autotune.graph.passes.site import sweep
from autotune.graph.quantise.arithmetic import LARGEST, NotExact, Sum, check_sum
from autotune.graph.quantise.formats import Format
from autotune.graph.quantise.images import rounded_behind_transposition
from autotune.graph.quantise.multiples import multiples
from autotune.graph.quantise.products import sum_of_products
from autotune.graph.quantise.units import LAYERS, LIMITS, value_limits, window_of_means
from autotune.graph.quantise.walk import ByteWalk

ON_BYTES = (*LAYERS, "conv1d", "conv3d")
"""Layers that have kernels on bytes."""
MULTIPLYING = (*ON_BYTES, "conv2d_transpose", "batch_matmul")
MOVES = ("reshape", "transpose", "slice", "copy", "max_pool2d")
"""Operations that move bytes or compare them, with equal results on bytes and on the numbers they represent."""
SIGN = 128
"""Offset from int8 to uint8."""
CLOSE_TO_INTEGER = 2.0**-22
"""Maximum distance of a bias from whole steps, relative to itself: the precision of float32."""


@dataclass(frozen=True, eq=False)
class ByteGraph:
    """A graph whose layers work on bytes wherever the model has bytes.

    Attributes:
        graph: graph with integer nodes; inputs and outputs are those of the model.
        layers: number of layers that work on bytes.
        left_float: names of the other layers → reasons.
        names: values that the model rounds to bytes → their names in `graph`.
        signed: values among these that are int8 in the model: `graph` has them as uint8 with 128 added.
    """

    graph: Graph
    layers: int = 0
    left_float: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    signed: frozenset[str] = frozenset()

    def __str__(self) -> str:
        lines = [f"{self.layers} layers on bytes, as the model is quantised; {len(self.left_float)} in floats"]
        return "\n".join([*lines, *(f"  {name}: {reason}" for name, reason in self.left_float.items())])

    def to_json(self) -> dict[str, Any]:
        """Returns the numbers as plain data."""
        return {"layers": self.layers, "left_float": dict(self.left_float)}


def has_roundings(graph: Graph) -> bool:
    """Tells whether a graph converts floats to bytes or back, as another quantiser's does."""
    return any(node.op in ("quantise_linear", "dequantise") for node in graph.nodes)


def is_quantised(graph: Graph) -> bool:
    """Tells whether a graph was quantised elsewhere: it has roundings to bytes, or layers that read bytes."""
    layers = (node for node in graph.nodes if node.op in MULTIPLYING)
    return has_roundings(graph) or any(graph.type(name).dtype in RANGES for node in layers for name in node.inputs)


def with_byte_layers(graph: Graph) -> ByteGraph | None:
    """Rewrites the layers of a model quantised elsewhere to work on bytes; returns None without roundings.

    Args:
        graph: optimised graph: channels last, weights as floats.
    """
    if not has_roundings(graph):
        return None
    return _Walk(sweep(graph, rounded_behind_transposition)).run()


@dataclass(frozen=True)
class _StoredBytes:
    """Bytes in the new graph that represent a value.

    Attributes:
        name: name of the uint8 value.
        at: format of the bytes.
    """

    name: str
    at: Format


class _Walk(ByteWalk):
    """A walk over the nodes of a graph that has roundings to bytes."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.consumers = graph.consumers()
        self.raw: dict[str, str] = {}
        """Bytes of the model → their new names, uint8."""
        self.bytes_by_name: dict[str, _StoredBytes] = {}
        """Floats that bytes represent."""
        self.positions: dict[str, int] = {}
        self.finished_nodes: set[str] = set()

    def run(self) -> ByteGraph:
        for node in self.graph.nodes:
            if node.name not in self.finished_nodes:
                self._visit(node)
            self.positions.setdefault(node.name, len(self.positions))
        graph = self.finish()
        kept = {*graph.inputs, *(node.name for node in graph.nodes)}
        made = [node for node in self.graph.nodes if node.op == "quantise_linear"]
        names = {n.name: self.raw.get(n.name) or self.floats.get(n.name, "") for n in made}
        names = {old: new for old, new in names.items() if new in kept}
        signed = frozenset(n for n in names if n in self.raw and self.graph.type(n).dtype == "int8")
        return ByteGraph(graph, self.layers, self.left_float, names, signed)

    def _visit(self, node: Node) -> None:
        rules = {
            "dequantise": self._dequantise,
            "quantise_linear": self._quantise_linear,
            "concat": self._concat,
            "add": self._add,
        }
        if node.op in ON_BYTES:
            handled = self._layer(node)
        elif node.op in (*MOVES, "pad"):
            handled = self._move(node)
        elif window_of_means(self.graph, node) is not None:
            handled = self._mean(node)
        else:
            handled = node.op in rules and rules[node.op](node)
        if handled:
            return
        if node.op in MULTIPLYING and node.name not in self.left_float:
            self.left_float[node.name] = self._reason(node)
        self.keep(node, fresh=find(node.op).kind is Kind.elementwise)

    def _reason(self, node: Node) -> str:
        if node.op not in ON_BYTES:
            return f"{node.op} has no kernel on bytes here"
        if node.inputs[1] not in self.graph.constants:
            return "both factors are computed"
        return "its data are no bytes with one scale and zero"

    # ------------------------------------------------------------------ values
    def value(self, name: str, fresh: bool = False) -> str:
        if name in self.floats:
            return self.floats[name]
        if name in self.raw:
            self.floats[name] = self.raw[name]
            if self.graph.type(name).dtype == "int8":  # and its reader is not `dequantise`
                wide = self.builder.add("cast", [self.raw[name]], dtype="int32")
                wide = self.builder.add("subtract", [wide, self.constant(SIGN, np.int32)])
                self.floats[name] = self.builder.add("cast", [wide], name, dtype="int8")
            return self.floats[name]
        kept = self.bytes_by_name[name]
        made = self.builder.add("dequantise", [kept.name, *self.numbers(kept.at)])
        if not fresh:
            self.floats[name] = made
        return made

    def unsigned_bytes(self, name: str) -> str | None:
        """Returns bytes of the model as uint8, or None for constants."""
        if name not in self.raw and name in self.graph.inputs:
            signed = self.graph.type(name).dtype == "int8"
            self.raw[name] = self.builder.add("offset", [name]) if signed else name
        elif name not in self.raw and name in self.floats and name not in self.graph.constants:
            signed = self.graph.type(name).dtype == "int8"
            self.raw[name] = self.builder.add("offset", [self.floats[name]]) if signed else self.floats[name]
        return self.raw.get(name)

    def format(self, node: Node) -> Format | None:
        """Returns the format of the bytes that a node converts, as uint8; None for several or invalid scales."""
        scale, zero = (self.graph.constants.get(name) for name in node.inputs[1:])
        if scale is None or zero is None or scale.size != 1 or zero.size != 1:
            return None
        try:
            return Format(exact_scale(float(scale.flat[0])), int(zero.flat[0]) - RANGES[str(zero.dtype)][0])
        except ValueError:
            return None

    def _reads(self, name: str) -> int:
        """Counts the nodes that will read the bytes of a float."""
        node = self.graph.node(name)
        if node is None or node.op != "dequantise":
            return len(self.consumers[name]) + (name in self.graph.outputs)
        sides = [n for n in self.consumers[node.inputs[0]] if n.op == "dequantise"]
        others = len(self.consumers[node.inputs[0]]) - len(sides) + (node.inputs[0] in self.graph.outputs)
        return others + sum(len(self.consumers[n.name]) + (n.name in self.graph.outputs) for n in sides)

    # ------------------------------------------------------------------ nodes
    def _dequantise(self, node: Node) -> bool:
        at = self.format(node)
        source = None if at is None else self.unsigned_bytes(node.inputs[0])
        if at is None or source is None:
            return False
        self.bytes_by_name[node.name] = _StoredBytes(source, at)
        return True

    def _quantise_linear(self, node: Node) -> bool:
        at = self.format(node)
        if at is None:
            return False
        self.raw[node.name] = self._round_to_bytes(node.inputs[0], at, node.name)
        return True

    def _round_to_bytes(self, name: str, at: Format, title: str) -> str:
        """Returns a float of the model as bytes: stored ones if the format is the same, otherwise rounded ones."""
        kept = self.bytes_by_name.get(name)
        if kept is not None and kept.at == at:
            return kept.name
        return self.builder.add("quantise_linear", [self.value(name, True), *self.numbers(at)], title, dtype=at.dtype)

    def _move(self, node: Node) -> bool:
        """Moves bytes; padding with zeros becomes padding with bytes of the format's zero."""
        source = node.inputs[0]
        stored, padded = self.bytes_by_name.get(source), node.op == "pad"
        if padded and (stored is None or node.attrs["value"] != 0.0):
            return False
        if stored is not None:
            name = "" if padded else node.name
            self.bytes_by_name[node.name] = _StoredBytes(self.move(node, [stored.name], stored.at, name), stored.at)
        elif source in self.raw:
            self.raw[node.name] = self.builder.add(node.op, [self.raw[source]], node.name, **node.attrs)
        return stored is not None or source in self.raw

    def _concat(self, node: Node) -> bool:
        """Concatenates bytes in their common format, or in the format to which all readers round."""
        kept = [self.bytes_by_name.get(name) for name in node.inputs]
        formats = {None if x is None else x.at for x in kept}
        readers = self.consumers[node.name]
        wanted = {self.format(reader) if reader.op == "quantise_linear" else None for reader in readers}
        at = next(iter(formats if len(formats) == 1 else wanted), None)
        rounds = len(wanted) == 1 and node.name not in self.graph.outputs
        if at is None or not (len(formats) == 1 or (rounds and None not in formats)):
            return False
        parts = [self._round_to_bytes(name, at, "") for name in node.inputs]
        self.bytes_by_name[node.name] = _StoredBytes(self.builder.add("concat", parts, node.name, **node.attrs), at)
        return True

    def _add(self, node: Node) -> bool:
        """Adds bytes to a float in that float's kernel; of two byte operands, the one computed last becomes a float."""
        in_bytes = [name for name in node.inputs if name in self.bytes_by_name]
        if not in_bytes or len({self.graph.type(name).shape for name in (*node.inputs, node.name)}) != 1:
            return False
        if len(in_bytes) == 2:
            first = max(in_bytes, key=lambda name: (self._reads(name) == 1, self.positions[name]))
        else:
            first = next(name for name in node.inputs if name not in in_bytes)
            if first in self.graph.constants:
                return False
        other = node.inputs[1 - node.inputs.index(first)]
        added = self.bytes_by_name[other]
        inputs = [self.value(first, True), added.name, *self.numbers(added.at)]
        self.floats[node.name] = self.builder.add("add_dequantised", inputs, node.name)
        return True

    def _mean(self, node: Node) -> bool:
        stored = self.bytes_by_name.get(node.inputs[0])
        if stored is None:
            return False
        try:
            self.floats[node.name] = self.average(node, stored.name, stored.at, None)
        except NotExact:
            return False
        return True

    # ------------------------------------------------------------------ layers
    def _layer(self, node: Node) -> bool:
        data, weight = node.inputs
        stored, array = self.bytes_by_name.get(data), self.graph.constants.get(weight)
        if stored is None or array is None or array.dtype != np.float32:
            return False
        weights = multiples(array)
        if weights is None:
            self.left_float[node.name] = "its weights are not multiples, from -128 to 127, of a scale by channel"
            return False
        columns = weights.values.reshape(-1, weights.values.shape[-1]).astype(np.int64)
        units = stored.at.scale * weights.scales
        end = self._find_end(node, units)
        total = -stored.at.zero * columns.sum(0) + end.bias
        try:
            check_sum(255 * np.abs(columns).sum(0), total)
        except NotExact as error:
            self.left_float[node.name] = str(error)
            return False
        self.layers += 1
        value = sum_of_products(self.builder, node, stored.name, weights.values, stored.at)
        at, nothing = end.output, np.zeros(1, np.int64)
        if at is None:
            self.floats[node.name] = self.end(node.name, value, Sum(nothing, (), total, units, None))
            return True
        low, high = (_byte(limit, at) for limit in (end.low, end.high))
        name = end.nodes[-1].name
        self.raw[name] = self.end(name, value, Sum(nothing, (), total, units / at.scale, at, low, high, at.zero))
        self.finished_nodes.update(node.name for node in end.nodes)
        return True

    def _find_end(self, node: Node, units: Array) -> _End:
        """Collects the nodes from a layer to the rounding to bytes; has no output if any other node is between."""
        nothing = np.zeros(len(units), np.int64)
        low, high, bias, seen = -np.inf, np.inf, nothing, [node]
        while len(readers := self.consumers[seen[-1].name]) == 1 and seen[-1].name not in self.graph.outputs:
            (reader,) = readers
            if reader.op == "quantise_linear" and reader.inputs[0] == seen[-1].name:
                at = self.format(reader)
                return _End(bias, low, high, at, (*seen[1:], reader)) if at is not None else _End(nothing)
            limited = len(seen) > 1 and (low, high) != (-np.inf, np.inf)
            if reader.op == "add" and not limited and not bias.any():
                steps = self._whole_steps(next((n for n in reader.inputs if n != seen[-1].name), ""), units)
                if steps is None:
                    return _End(nothing)
                bias = steps
            elif (reader.op == "clip" or reader.op in LIMITS) and not limited:
                low, high = value_limits(reader)
            else:
                return _End(nothing)
            seen.append(reader)
        return _End(nothing)

    def _whole_steps(self, name: str, units: Array) -> Array | None:
        """Returns a bias by channel in steps of the sums, or None if it is not whole."""
        array = self.graph.constants.get(name)
        if array is None or array.size not in (1, len(units)) or array.shape[-1:] not in ((), (1,), (len(units),)):
            return None
        steps = np.broadcast_to(array.reshape(-1), units.shape).astype(np.float64) / units
        whole = np.rint(steps)
        if np.abs(whole).max(initial=0) > LARGEST or (np.abs(steps - whole) > CLOSE_TO_INTEGER * np.abs(steps)).any():
            return None
        return np.asarray(whole.astype(np.int64))


@dataclass(frozen=True, eq=False)
class _End:
    """The nodes behind a layer that its kernel applies to the sum.

    Attributes:
        bias: bias in steps of the sum, by channel.
        low, high: floats that limit the sum.
        output: format of the bytes; None: the sum leaves the layer as a float.
        nodes: nodes in order.
    """

    bias: Array
    low: float = -np.inf
    high: float = np.inf
    output: Format | None = None
    nodes: tuple[Node, ...] = ()


def _byte(limit: float, at: Format) -> int:
    """Rounds a float to a byte, as `quantise_linear` does."""
    low, high = RANGES[at.dtype]
    steps = np.float32(limit) / np.float32(at.scale)
    return int(np.clip(np.rint(steps) + np.float32(at.zero), low, high))
