"""Networks in 16-bit floats: the values that are stored and multiplied in them, and those that stay in float32.

A 16-bit float is a storage type: an operation that computes widens its inputs to float32 and returns float32
(`GraphOp.list_stored_dtypes`). Products of two 16-bit operands are summed in float32, and a `cast` rounds. So the graph
states where values are rounded, its evaluation in NumPy rounds at the same points, and a kernel rounds once, when it
writes.

Values between kernels are rounded if they are computed from a layer with weights. Inputs, embeddings, masks and the
like stay as they are, as do the network's outputs. So do the scores that a softmax reads, as it would exponentiate
their rounding, and the sums that a transformer carries from layer to layer. A value that an operation compares with one
in float32 stays, too (`comparisons.py`): layers that multiply it read a rounded copy.

Kernels may stay in float32 individually. A value is stored in 16 bits if its own kernel, or a layer that multiplies it,
is in 16 bits. Other readers widen it as they read it, at no cost, whereas a second copy would cost a kernel. Between
kernels in float32 it stays float32.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autotune.graph.comparisons import stored_alike
from autotune.graph.ir import Graph, GraphBuilder, Node
from autotune.graph.ops import Kind, find
from autotune.graph.partition import group_nodes
from autotune.graph.views import locate
from search_space.dtypes import NARROW, numpy_dtype

FULL = "float32"
"""Dtype of a network that is not lowered."""

ALWAYS = ("matmul", "batch_matmul", "conv_filters", "conv_phases")
"""Operations that multiply 16-bit floats whatever their number of channels; the last two are gradients of layers."""

LAYERS = ("conv1d", "conv2d", "conv3d", "conv2d_transpose", *ALWAYS)
"""Operations that multiply 16-bit floats and sum in float32."""

FEW_CHANNELS = 4
"""Maximum channels of an input that is multiplied in float32, such as an image: channel pairs would be mostly padding.

Channels of a group are paired if their number is even."""


def narrow_floats(graph: Graph) -> tuple[str, ...]:
    """Lists the 16-bit float dtypes of a graph's inputs, constants and values, sorted."""
    kinds = {graph.type(name).dtype for name in (*graph.inputs, *graph.constants)}
    return tuple(sorted((kinds | {node.type.dtype for node in graph.nodes}).intersection(NARROW)))


@dataclass(frozen=True)
class StorageGroup:
    """Values that are stored in one dtype, as one becomes another by a move.

    Attributes:
        values: values in order.
        kernels: kernels in order, named after their first nodes: those that compute the values, and the layers that
            multiply them. If any of them is in 16 bits, so are the values.
    """

    values: tuple[str, ...]
    kernels: tuple[str, ...]


def lower_precision(graph: Graph, dtype: str, full: Collection[str] = ()) -> Graph:
    """Converts the layers of a graph, and values between its kernels, to `dtype`.

    Args:
        graph: graph in float32, after the passes.
        dtype: `bfloat16` or `float16`.
        full: kernels from `list_narrow_kernels` that stay in float32.

    Raises:
        ValueError: `full` has a name that is not such a kernel.
    """
    return lowered_with_origins(graph, dtype, full)[0]


def lowered_with_origins(graph: Graph, dtype: str, full: Collection[str] = ()) -> tuple[Graph, dict[str, str]]:
    """Converts a graph like `lower_precision`; also maps each new node except casts to its name in `graph`."""
    if full and (unknown := sorted(set(full).difference(list_narrow_kernels(graph)))):
        raise ValueError(f"`full` must name kernels that may be in 16 bits, but got {unknown[0]!r}")
    names = rounded_values(graph)
    if full:
        together = [stored for stored in stored_together(graph) if not frozenset(full).issuperset(stored.kernels)]
        names = {name for stored in together for name in stored.values}
    lowering = _Lowering(graph, dtype, names, full)
    return lowering.run(), lowering.origins


def lower_values(graph: Graph, dtype: str, names: Collection[str]) -> Graph:
    """Converts all layers of a graph to `dtype`, and stores the values `names` in it.

    Args:
        graph: graph in float32, after the passes.
        dtype: `bfloat16` or `float16`.
        names: values in float32, each the last of its kernel; those outside of `stored_alike` stay in float32.
    """
    return _Lowering(graph, dtype, names).run()


class _Lowering:
    def __init__(self, graph: Graph, dtype: str, names: Collection[str], full: Collection[str] = ()) -> None:
        self._graph, self._dtype = graph, dtype
        self._rounded_names, self._full = stored_alike(graph, names, dtype), frozenset(full)
        self.origins: dict[str, str] = {}
        self._builder = GraphBuilder(graph.name, graph.inputs, graph.output_names)
        self._names = {name: name for name in graph.inputs}
        for name, array in graph.constants.items():
            self._names[name] = self._builder.constant(array, name)
        self._narrow: dict[str, str] = {}  # new name in float32 -> new name in the 16-bit float

    def run(self) -> Graph:
        for node in self._graph.nodes:
            name = self._add(node)
            self.origins[name] = node.name
            if node.name in self._rounded_names and self._builder.type(name).dtype == "float32":
                name = self._rounded_to(name)
            self._names[node.name] = name
        outputs = [self._names[name] for name in self._graph.outputs]
        kept = self._builder.finish(outputs)
        read = {name for node in kept.nodes for name in node.inputs} | set(outputs)
        constants = {name: array for name, array in kept.constants.items() if name in read}
        return replace(kept, constants=constants)

    def _add(self, node: Node) -> str:
        inputs, attrs = [self._names[name] for name in node.inputs], dict(node.attrs)
        if is_lowered(self._graph, node) and node.name not in self._full:
            inputs = [self._rounded_to(name) for name in inputs]
        elif node.op == "attention" and self._dtype == "bfloat16" and not node.attrs["causal"]:
            inputs[:3] = [self._rounded_to(name) for name in inputs[:3]]  # summands of the scores stay in float32
            attrs["weights"] = self._dtype
        elif _is_move(node):
            kinds = {self._builder.type(name).dtype for name in inputs}
            if {"float32", self._dtype} <= kinds:  # parts of a concatenation need one dtype
                inputs = [self._rounded_to(n) if self._builder.type(n).dtype == "float32" else n for n in inputs]
        return self._builder.add(node.op, inputs, node.name, **attrs)

    def _rounded_to(self, name: str) -> str:
        if self._builder.type(name).dtype != "float32":
            return name
        if name not in self._narrow:
            array = self._builder.array(name)
            if array is None:
                self._narrow[name] = self._builder.add("cast", [name], dtype=self._dtype)
            else:
                with np.errstate(over="ignore"):
                    self._narrow[name] = self._builder.constant(array.astype(numpy_dtype(self._dtype)), name)
        return self._narrow[name]


def is_lowered(graph: Graph, node: Node) -> bool:
    """Tells whether a node is a layer that multiplies 16-bit floats, or the gradient of one by an operand."""
    if node.type.dtype != "float32":
        return False
    if node.op == "gradient":
        attrs = dict(node.attrs["arguments"])
        return _multiplies(node.attrs["operation"], attrs, [shape for shape, _ in node.attrs["types"]])
    return _multiplies(node.op, node.attrs, [graph.type(name).shape for name in node.inputs])


def _multiplies(operation: str, attrs: Mapping[str, Any], shapes: Sequence[Sequence[int]]) -> bool:
    """Tells whether an operation on inputs of these shapes multiplies 16-bit floats."""
    if operation not in LAYERS:
        return False
    if operation in ALWAYS:
        return True
    channels, groups = shapes[1][-2], attrs.get("groups", 1)
    return channels > FEW_CHANNELS or (groups > 1 and channels % 2 == 0)


def rounded_values(graph: Graph) -> set[str]:
    """Collects float32 values that are stored in 16 bits, in a graph after the passes."""
    layered = _below_layers(graph)
    excluded = _given_out(graph) | scores(graph) | residual_stream(graph)
    rounded = set()
    for nodes, nothing in group_nodes(graph, locate(graph)):
        node = nodes[-1]
        computed = not nothing and (len(nodes) > 1 or not find(node.op).moves)
        if computed and node.name in layered and node.name not in excluded and node.type.dtype == "float32":
            rounded.add(node.name)
    return rounded


def list_narrow_kernels(graph: Graph) -> tuple[str, ...]:
    """Lists kernels that may be in 16 bits, in order: layers, and those whose value may be stored in 16 bits.

    They are named after their first nodes, as layers always are.
    """
    found = {node.name for node in graph.nodes if is_lowered(graph, node)}
    found.update(name for stored in stored_together(graph) for name in stored.kernels)
    return tuple(node.name for node in graph.nodes if node.name in found)


def stored_together(graph: Graph) -> list[StorageGroup]:
    """Lists values that may be stored in 16 bits, grouped by shared dtypes."""
    rounded, same = rounded_values(graph), moved_together(graph)
    firsts = {nodes[-1].name: nodes[0].name for nodes, _ in group_nodes(graph, locate(graph))}
    values: dict[str, list[str]] = {}
    kernels: dict[str, list[str]] = {}
    for node in graph.nodes:
        if node.name in rounded:
            values.setdefault(same[node.name], []).append(node.name)
            kernels.setdefault(same[node.name], []).append(firsts[node.name])
    for node in graph.nodes:
        for name in dict.fromkeys(node.inputs) if is_lowered(graph, node) else ():
            if same.get(name) in values:
                kernels[same[name]].append(node.name)
    return [StorageGroup(tuple(found), tuple(dict.fromkeys(kernels[root]))) for root, found in values.items()]


def moved_together(graph: Graph) -> dict[str, str]:
    """Maps each node to the first of those that are moved into each other, such as the parts of a concatenation."""
    first: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    for node in graph.nodes:
        moved = _is_move(node)
        roots = {first[name] for name in node.inputs if moved and name in first}
        root = min(roots, key=list(first).index) if len(roots) > 1 else next(iter(roots), node.name)
        for other in roots - {root}:
            first.update(dict.fromkeys(members[other], root))
            members[root] += members.pop(other)
        first[node.name] = root
        members.setdefault(root, []).append(node.name)
    return first


def _is_move(node: Node) -> bool:
    """Tells whether a node's value has its input's elements, in the same dtype."""
    return find(node.op).moves and node.op != "cast"


def _below_layers(graph: Graph) -> set[str]:
    """Collects the values that depend on layers with weights."""
    values: set[str] = set()
    for node in graph.nodes:
        weighted = node.op not in ("reshape", "transpose") and any(name in graph.constants for name in node.inputs)
        if values.intersection(node.inputs) or (weighted and find(node.op).kind is Kind.compute):
            values.add(node.name)
    return values


def _given_out(graph: Graph) -> set[str]:
    """Collects the outputs of the graph, and the values that are only moved on the way to them."""
    values = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.name in values and find(node.op).moves:
            values.update(node.inputs)
    return values


def residual_stream(graph: Graph) -> set[str]:
    """Collects sums of two computed values that a layer normalisation reads, and normalised rows in such sums.

    A transformer adds to them in each layer: rounded each time, they would cause most of the total noise.
    """

    def source(name: str) -> str:
        while (node := graph.node(name)) is not None and find(node.op).kind is Kind.view:
            name = node.inputs[0]
        return name

    normalised = [node for node in graph.nodes if node.op in ("layer_norm", "rms_norm")]
    read = {source(node.inputs[0]) for node in normalised}
    sums = [
        node
        for node in graph.nodes
        if node.op == "add" and node.name in read and not any(name in graph.constants for name in node.inputs)
    ]
    taken = {source(name) for node in sums for name in node.inputs}
    return {node.name for node in sums} | {node.name for node in normalised if node.name in taken}


def scores(graph: Graph) -> set[str]:
    """Collects the inputs of softmax, in any shape."""
    values: set[str] = set()
    for node in reversed(graph.nodes):
        if node.op in ("softmax", "log_softmax") or (node.name in values and find(node.op).kind is Kind.view):
            values.add(node.inputs[0])
    return values
