"""Models that another quantiser made: layers between `dequantise` and `quantise_linear` as sums of bytes.

A layer whose data are bytes and whose weights are multiples of a scale (`multiples`) has its products added up in
int32, where the model's floats would round each sum. What follows is what the model says, in float32 and in its order;
a bias of whole steps, limits and the rounding to bytes are `requantise`. What only moves bytes is moved as bytes.

int8 data are kept as uint8 with 128 added, and their zeros with them: that is what dot products take.
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
from autotune.graph.quantise.units import LAYERS, LIMITS, limits_of, window_of_means
from autotune.graph.quantise.walk import ByteWalk

ON_BYTES = (*LAYERS, "conv1d", "conv3d")
"""Layers that have kernels on bytes."""
MULTIPLYING = (*ON_BYTES, "conv2d_transpose", "batch_matmul")
MOVES = ("reshape", "transpose", "slice", "copy", "max_pool2d")
"""Operations that move bytes or compare them: the same on bytes as on what these stand for."""
SIGN = 128
"""Offset from int8 to uint8."""
WHOLE = 2.0**-22
"""Greatest distance of a bias from whole steps, relative to itself: float32 has it no closer."""


@dataclass(frozen=True, eq=False)
class Imported:
    """A graph whose layers work on bytes where the model has bytes there.

    Attributes:
        graph: with integer nodes; inputs and outputs are those of the model.
        layers: how many layers work on bytes.
        left_float: names of the layers that do not, and why.
        names: values that the model rounds to bytes → their names in `graph`.
        signed: those of them that are int8 in the model: `graph` has them as uint8 with 128 added.
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
        """Plain data."""
        return {"layers": self.layers, "left_float": dict(self.left_float)}


def has_roundings(graph: Graph) -> bool:
    """Tells whether a graph converts floats to bytes or back, as one of another quantiser does."""
    return any(node.op in ("quantise_linear", "dequantise") for node in graph.nodes)


def is_quantised(graph: Graph) -> bool:
    """Tells whether another quantiser made a graph: it has roundings to bytes, or layers that read bytes."""
    layers = (node for node in graph.nodes if node.op in MULTIPLYING)
    return has_roundings(graph) or any(graph.type(name).dtype in RANGES for node in layers for name in node.inputs)


def with_byte_layers(graph: Graph) -> Imported | None:
    """The graph with its layers on bytes; None where it has nothing of another quantiser.

    Args:
        graph: optimised: channels last, weights as floats.
    """
    if not has_roundings(graph):
        return None
    return _Walk(sweep(graph, rounded_behind_transposition)).run()


@dataclass(frozen=True)
class _Stored:
    """Bytes in the new graph that a value is kept as.

    Attributes:
        name: uint8.
        at: what they stand for.
    """

    name: str
    at: Format


class _Walk(ByteWalk):
    """Walk over the nodes of a graph that has roundings to bytes."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.consumers = graph.consumers()
        self.raw: dict[str, str] = {}
        """Bytes of the model → their new names, uint8."""
        self.stored: dict[str, _Stored] = {}
        """Floats that bytes stand for."""
        self.place: dict[str, int] = {}
        self.done: set[str] = set()

    def run(self) -> Imported:
        for node in self.graph.nodes:
            if node.name not in self.done:
                self._visit(node)
            self.place.setdefault(node.name, len(self.place))
        graph = self.finish()
        kept = {*graph.inputs, *(node.name for node in graph.nodes)}
        made = [node for node in self.graph.nodes if node.op == "quantise_linear"]
        names = {n.name: self.raw.get(n.name) or self.floats.get(n.name, "") for n in made}
        names = {old: new for old, new in names.items() if new in kept}
        signed = frozenset(n for n in names if n in self.raw and self.graph.type(n).dtype == "int8")
        return Imported(graph, self.layers, self.left_float, names, signed)

    def _visit(self, node: Node) -> None:
        rules = {
            "dequantise": self._dequantise,
            "quantise_linear": self._quantise_linear,
            "concat": self._concat,
            "add": self._add,
        }
        if node.op in ON_BYTES:
            taken = self._layer(node)
        elif node.op in (*MOVES, "pad"):
            taken = self._move(node)
        elif window_of_means(self.graph, node) is not None:
            taken = self._mean(node)
        else:
            taken = node.op in rules and rules[node.op](node)
        if taken:
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
            if self.graph.type(name).dtype == "int8":  # and who reads it is no `dequantise`
                wide = self.builder.add("cast", [self.raw[name]], dtype="int32")
                wide = self.builder.add("subtract", [wide, self.constant(SIGN, np.int32)])
                self.floats[name] = self.builder.add("cast", [wide], name, dtype="int8")
            return self.floats[name]
        kept = self.stored[name]
        made = self.builder.add("dequantise", [kept.name, *self.numbers(kept.at)])
        if not fresh:
            self.floats[name] = made
        return made

    def bytes_of(self, name: str) -> str | None:
        """Bytes of the model as uint8, None where they are constants."""
        if name not in self.raw and name in self.graph.inputs:
            signed = self.graph.type(name).dtype == "int8"
            self.raw[name] = self.builder.add("offset", [name]) if signed else name
        elif name not in self.raw and name in self.floats and name not in self.graph.constants:
            signed = self.graph.type(name).dtype == "int8"
            self.raw[name] = self.builder.add("offset", [self.floats[name]]) if signed else self.floats[name]
        return self.raw.get(name)

    def format(self, node: Node) -> Format | None:
        """Format of the bytes that a node converts, as uint8; None for several scales, or an odd one."""
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
        source = None if at is None else self.bytes_of(node.inputs[0])
        if at is None or source is None:
            return False
        self.stored[node.name] = _Stored(source, at)
        return True

    def _quantise_linear(self, node: Node) -> bool:
        at = self.format(node)
        if at is None:
            return False
        self.raw[node.name] = self._rounded(node.inputs[0], at, node.name)
        return True

    def _rounded(self, name: str, at: Format, title: str) -> str:
        """A float of the model as bytes; where it is kept in this very format, those it has."""
        kept = self.stored.get(name)
        if kept is not None and kept.at == at:
            return kept.name
        return self.builder.add("quantise_linear", [self.value(name, True), *self.numbers(at)], title, dtype=at.dtype)

    def _move(self, node: Node) -> bool:
        """Moves bytes; padding with numbers of 0 is padding with bytes of the zero."""
        source = node.inputs[0]
        kept, padded = self.stored.get(source), node.op == "pad"
        if padded and (kept is None or node.attrs["value"] != 0.0):
            return False
        if kept is not None:
            name = "" if padded else node.name
            self.stored[node.name] = _Stored(self.move(node, [kept.name], kept.at, name), kept.at)
        elif source in self.raw:
            self.raw[node.name] = self.builder.add(node.op, [self.raw[source]], node.name, **node.attrs)
        return kept is not None or source in self.raw

    def _concat(self, node: Node) -> bool:
        """Concatenates bytes in their one format, or in the format that all readers round to."""
        kept = [self.stored.get(name) for name in node.inputs]
        formats = {None if x is None else x.at for x in kept}
        readers = self.consumers[node.name]
        wanted = {self.format(reader) if reader.op == "quantise_linear" else None for reader in readers}
        at = next(iter(formats if len(formats) == 1 else wanted), None)
        rounds = len(wanted) == 1 and node.name not in self.graph.outputs
        if at is None or not (len(formats) == 1 or (rounds and None not in formats)):
            return False
        parts = [self._rounded(name, at, "") for name in node.inputs]
        self.stored[node.name] = _Stored(self.builder.add("concat", parts, node.name, **node.attrs), at)
        return True

    def _add(self, node: Node) -> bool:
        """Bytes are added to a float by the kernel that has it; of two the one is a float whose kernel is last."""
        kept = [name for name in node.inputs if name in self.stored]
        if not kept or len({self.graph.type(name).shape for name in (*node.inputs, node.name)}) != 1:
            return False
        if len(kept) == 2:
            first = max(kept, key=lambda name: (self._reads(name) == 1, self.place[name]))
        else:
            first = next(name for name in node.inputs if name not in kept)
            if first in self.graph.constants:
                return False
        other = node.inputs[1 - node.inputs.index(first)]
        added = self.stored[other]
        inputs = [self.value(first, True), added.name, *self.numbers(added.at)]
        self.floats[node.name] = self.builder.add("add_dequantised", inputs, node.name)
        return True

    def _mean(self, node: Node) -> bool:
        kept = self.stored.get(node.inputs[0])
        if kept is None:
            return False
        try:
            self.floats[node.name] = self.average(node, kept.name, kept.at, None)
        except NotExact:
            return False
        return True

    # ------------------------------------------------------------------ layers
    def _layer(self, node: Node) -> bool:
        data, weight = node.inputs
        kept, array = self.stored.get(data), self.graph.constants.get(weight)
        if kept is None or array is None or array.dtype != np.float32:
            return False
        weights = multiples(array)
        if weights is None:
            self.left_float[node.name] = "its weights are not multiples, from -128 to 127, of a scale by channel"
            return False
        columns = weights.values.reshape(-1, weights.values.shape[-1]).astype(np.int64)
        units = kept.at.scale * weights.scales
        end = self._end_of(node, units)
        total = -kept.at.zero * columns.sum(0) + end.bias
        try:
            check_sum(255 * np.abs(columns).sum(0), total)
        except NotExact as error:
            self.left_float[node.name] = str(error)
            return False
        self.layers += 1
        value = sum_of_products(self.builder, node, kept.name, weights.values, kept.at)
        at, nothing = end.output, np.zeros(1, np.int64)
        if at is None:
            self.floats[node.name] = self.end(node.name, value, Sum(nothing, (), total, units, None))
            return True
        low, high = (_byte(limit, at) for limit in (end.low, end.high))
        name = end.nodes[-1].name
        self.raw[name] = self.end(name, value, Sum(nothing, (), total, units / at.scale, at, low, high, at.zero))
        self.done.update(node.name for node in end.nodes)
        return True

    def _end_of(self, node: Node, units: Array) -> _End:
        """Collects the nodes from a layer to the rounding to bytes; no output where anything else is between."""
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
                low, high = limits_of(reader)
            else:
                return _End(nothing)
            seen.append(reader)
        return _End(nothing)

    def _whole_steps(self, name: str, units: Array) -> Array | None:
        """A bias by channel in steps of the sums, None where it is not of whole ones."""
        array = self.graph.constants.get(name)
        if array is None or array.size not in (1, len(units)) or array.shape[-1:] not in ((), (1,), (len(units),)):
            return None
        steps = np.broadcast_to(array.reshape(-1), units.shape).astype(np.float64) / units
        whole = np.rint(steps)
        if np.abs(whole).max(initial=0) > LARGEST or (np.abs(steps - whole) > WHOLE * np.abs(steps)).any():
            return None
        return np.asarray(whole.astype(np.int64))


@dataclass(frozen=True, eq=False)
class _End:
    """Nodes behind a layer that its kernel does on the sum.

    Attributes:
        bias: in steps of the sum, by channel.
        low, high: floats between which the sum is limited.
        output: format of the bytes; None where the sum leaves the layer as a float.
        nodes: in order.
    """

    bias: Array
    low: float = -np.inf
    high: float = np.inf
    output: Format | None = None
    nodes: tuple[Node, ...] = ()


def _byte(limit: float, at: Format) -> int:
    """The byte that a float is rounded to, as `quantise_linear` does."""
    low, high = RANGES[at.dtype]
    steps = np.float32(limit) / np.float32(at.scale)
    return int(np.clip(np.rint(steps) + np.float32(at.zero), low, high))
