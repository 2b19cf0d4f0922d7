"""Rewriting of graphs in floats to graphs whose layers work on bytes: choice of bytes, and integer nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from autotune.config import Quantisation
from autotune.graph.ir import Graph, GraphError
from autotune.graph.quantise.arithmetic import NotExact, Sum, plan_layer, plan_sum
from autotune.graph.quantise.calibration import Calibration
from autotune.graph.quantise.formats import Format
from autotune.graph.quantise.noise import layer_decibels
from autotune.graph.quantise.products import sum_of_products
from autotune.graph.quantise.units import Unit, UnitRole, layers, units
from autotune.graph.quantise.walk import ByteWalk


@dataclass(frozen=True, eq=False)
class QuantisedGraph:
    """A quantised graph.

    Attributes:
        graph: graph with integer nodes; inputs and outputs are those of the float graph.
        formats: formats of the float graph's values that are bytes now.
        names: names of these values in `graph`.
        layers: number of layers that work on bytes.
        left_float: names of the other layers → reasons.
        storage: storage of layers.
    """

    graph: Graph
    formats: Mapping[str, Format]
    names: Mapping[str, str]
    layers: int
    left_float: Mapping[str, str] = field(default_factory=dict)
    storage: str = "int8"


def quantise(graph: Graph, calibration: Calibration, options: Quantisation | None = None) -> QuantisedGraph:
    """Quantises a graph.

    Args:
        graph: optimised graph in floats: batch normalisation folded, channels last.
        calibration: calibration of this graph.
        options: quantisation options; None: all layers that keep 25 dB, one scale per channel.

    Raises:
        GraphError: the graph has no layer with constant weights, or the calibration is of another graph.
        ValueError: a method or layer is unknown.
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
    """Returns the names of the layers that the options leave in floats → reasons.

    Raises:
        GraphError, ValueError: errors of `quantise`.
    """
    quantisable = layers(graph)
    if not quantisable:
        raise GraphError(f"a graph to quantise must have a layer with constant weights, but {graph.name} has none")
    values = [*graph.inputs, *graph.constants, *(node.name for node in graph.nodes)]
    floats = [name for name in values if graph.type(name).dtype == "float32" and graph.type(name).size]
    if missing := [name for name in floats if name not in calibration.observations]:
        raise GraphError(f"`calibration` must be of the graph to quantise, but it lacks {missing[0]!r}")
    return left_by_options(graph, quantisable, options)


def left_by_options(graph: Graph, layers: Sequence[str], options: Quantisation) -> dict[str, str]:
    """Returns the names of the layers that the options leave in floats → reasons.

    Args:
        graph: graph of the layers.
        layers: names of all layers that could be quantised, in order; at least one.
        options: options of which `floats`, `first` and `last` are read.

    Raises:
        ValueError: `floats` has other names than these layers.
    """
    if unknown := [name for name in options.floats if name not in layers]:
        raise ValueError(f"`floats` must be layers of {graph.name} ({', '.join(layers)}), but got {unknown[0]!r}")
    skipped = dict.fromkeys(options.floats, "so the options say")
    skipped |= {} if options.first else {layers[0]: "the first layer"}
    return skipped | ({} if options.last else {layers[-1]: "the last layer"})


class _Classes:
    """Sets of values that share a format, or that are bytes or floats together: a union-find over names."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def find(self, name: str) -> str:
        while (above := self._parent.get(name, name)) != name:
            name = above
        return name

    def join(self, names: Sequence[str]) -> None:
        for name in names[1:]:
            self._parent[self.find(name)] = self.find(names[0])


class Rewriting(ByteWalk):
    """A walk over the units of a graph that quantises them.

    Args:
        graph: graph in floats.
        calibration: calibration of the graph.
        options: quantisation options.
        left_float: names of layers that stay in floats → reasons.
    """

    residuals = True
    """Flag that a layer may end with the addition of a residual."""
    signed = False
    """Flag that bytes are int8 with a zero of 0."""

    def __init__(
        self, graph: Graph, calibration: Calibration, options: Quantisation, left_float: dict[str, str]
    ) -> None:
        super().__init__(graph)
        self.calibration, self.options = calibration, options
        self.left_float = dict(left_float)
        self.units = units(graph, left_float, self.residuals)
        self.bytes: dict[str, str] = {}
        self.formats: dict[str, Format] = {}
        self._decide()

    def _decide(self) -> None:
        """Decides which units work on bytes, layers and the units before them, and which values are read as bytes.

        Units that only floats depend on stay in floats: bytes would cost accuracy and save nothing.
        """
        same = _Classes()
        self.active: set[Unit] = set()
        self.byte_reads: set[str] = set()
        for unit in reversed(self.units):
            read = unit.output.name in self.byte_reads
            if unit.part is UnitRole.layer:
                self.active.add(unit)
                self.byte_reads.update(unit.data if read else unit.data[:1])
            elif unit.part is not UnitRole.other and read:
                self.active.add(unit)
                self.byte_reads.update(unit.data)
        if self.signed:  # layers always return bytes there, so operations on them alone cost nothing
            self._made_of_bytes()
        self.members: dict[str, list[str]] = {}
        for unit in self.active:
            if unit.part is UnitRole.move:
                same.join([*unit.data, unit.output.name])
        self._same = same
        for name in [*self.graph.inputs, *self.graph.constants, *(node.name for node in self.graph.nodes)]:
            self.members.setdefault(same.find(name), []).append(name)

    def _made_of_bytes(self) -> None:
        in_bytes = {unit.output.name for unit in self.active} | set(self.graph.constants)
        for unit in self.units:
            if unit.part is not UnitRole.other and in_bytes.issuperset(unit.data):
                self.active.add(unit)
                self.byte_reads.update(unit.data)
                in_bytes.add(unit.output.name)

    def run(self) -> QuantisedGraph:
        for unit in self.units:
            if unit in self.active:
                try:
                    self._visit(unit)
                    self.layers += unit.part is UnitRole.layer
                    continue
                except NotExact as error:
                    self.left_float[unit.nodes[0].name] = str(error)
            for node in unit.nodes:
                self.keep(node)
        graph = self.finish()
        kept = {node.name for node in graph.nodes}
        names = {old: new for old, new in self.bytes.items() if new in kept}
        return QuantisedGraph(graph, {old: self.format(old) for old in names}, names, self.layers, self.left_float)

    # ------------------------------------------------------------------ values
    def format(self, name: str) -> Format:
        """Returns the format of a value that is bytes."""
        root = self._same.find(name)
        if root not in self.formats:
            self.formats[root] = self.calibration.format(self.members[root], self.options.method, self.signed)
        return self.formats[root]

    def value(self, name: str, fresh: bool = False) -> str:
        if name not in self.floats:
            source = self.bytes[name]
            self.floats[name] = self.builder.add("dequantise", [source, *self.numbers(self.format(name))])
        return self.floats[name]

    def byte(self, name: str) -> str:
        """Returns the value in bytes."""
        if name not in self.bytes:
            at = self.format(name)
            if name in self.graph.constants:
                self.bytes[name] = self.builder.constant(at.encode(self.graph.constants[name]), name)
            else:
                source = self.value(name)
                numbers = self.numbers(at, inverse=True)
                self.bytes[name] = self.builder.add("quantise", [source, *numbers], dtype=at.dtype)
        return self.bytes[name]

    # ------------------------------------------------------------------ units
    def _visit(self, unit: Unit) -> None:
        if unit.part is UnitRole.layer:
            self._layer(unit)
        elif unit.part is UnitRole.average:
            self._average(unit)
        elif unit.part is UnitRole.move:
            self._move(unit)
        else:
            self._add(unit)

    def _output(self, unit: Unit) -> Format | None:
        """Returns the format of the unit's value, or None if nothing reads it as bytes."""
        return self.format(unit.output.name) if unit.output.name in self.byte_reads else None

    def _end_unit(
        self, unit: Unit, value: str, end: Sum, residuals: Sequence[str] = (), summands: Sequence[str] = ()
    ) -> None:
        value = self.end(unit.output.name, value, end, (unit.low, unit.high), residuals, summands)
        (self.floats if end.format is None else self.bytes)[unit.output.name] = value

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
        self._end_unit(unit, value, end, inputs[1:], residuals[len(added) :])

    def _add(self, unit: Unit) -> None:
        """Adds bytes, or rescales one operand."""
        limits = (unit.low, unit.high)
        end = plan_sum(tuple(self.format(n) for n in unit.data), self._output(unit), unit.bias, limits)
        first, *rest = [self.byte(name) for name in unit.data]
        value = self.builder.add("widen", [first, self.constant(end.factors[0])])
        self._end_unit(unit, value, replace(end, factors=end.factors[1:]), rest)

    def _average(self, unit: Unit) -> None:
        (node,), (data,) = unit.nodes, unit.data
        output = self._output(unit)
        made = self.floats if output is None else self.bytes
        made[node.name] = self.average(node, self.byte(data), self.format(data), output)

    def _move(self, unit: Unit) -> None:
        (node,) = unit.nodes
        inputs = [self.byte(name) for name in node.inputs]
        self.bytes[node.name] = self.move(node, inputs, self.format(node.name), node.name)
