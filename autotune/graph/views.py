"""Values without memory of their own: views, concatenations written in place, slices read in place.

The producers of a concatenation's inputs may write directly into it, row by row, and a slice may be read in place. Each
such value has a location: another value's memory, an offset, and that value's strides. Kernels are built for the
strides of their inputs and outputs, so nothing is copied.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from autotune.graph.ir import Graph, Node
from autotune.graph.ops import Kind, find
from search_space.dtypes import numpy_dtype


@dataclass(frozen=True)
class Location:
    """The location of a value in memory.

    Attributes:
        root: value that owns the memory.
        offset: elements from the root's first element to its own.
        strides: elements between neighbours along each of its dimensions; None: dense, row-major.
    """

    root: str
    offset: int = 0
    strides: tuple[int, ...] | None = None


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Computes row-major strides."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def locate(
    graph: Graph, in_place: bool = True, computed_inputs: Collection[str] = (), alignment: int = 1
) -> dict[str, Location]:
    """Locates every value of a graph.

    Args:
        graph: graph whose values are located.
        in_place: whether concatenations are written and slices read in place; otherwise only views share memory.
        computed_inputs: inputs that kernels outside the graph compute, if it is a part of another one: they may be
            written into a concatenation, too.
        alignment: bytes to which every value must be aligned in its root; concatenations and slices that would violate
            it are computed.
    """
    apart: set[str] = set()
    while True:
        inside = _written_in_place(graph, computed_inputs, apart) if in_place else {}
        found = _locate(graph, in_place, computed_inputs, inside, apart)
        more = _find_unaligned(graph, found, inside, alignment)
        if not more:
            return found
        apart |= more


def _locate(
    graph: Graph,
    in_place: bool,
    computed_inputs: Collection[str],
    inside: Mapping[str, tuple[Node, int]],
    apart: Collection[str],
) -> dict[str, Location]:
    locations = {name: Location(name) for name in (*graph.inputs, *graph.constants)}
    for node in reversed(graph.nodes):  # consumers first: a concatenation may lie in another one
        locations[node.name] = _within(locations, *inside[node.name]) if node.name in inside else Location(node.name)
    locations |= {name: _within(locations, *inside[name]) for name in computed_inputs if name in inside}
    for node in graph.nodes:  # producers first: views of values that have a location by now
        if find(node.op).kind is Kind.view:
            locations[node.name] = _locate_view(locations[node.inputs[0]], node)
        elif not in_place or node.name in apart:
            continue
        elif node.name not in inside and _is_stretch(graph, node, inside):
            at = locations[node.inputs[0]]
            locations[node.name] = Location(at.root, at.offset, at.strides)
        elif _read_in_place(graph, node, locations[node.inputs[0]]):
            at, contiguous = locations[node.inputs[0]], _is_contiguous(graph, node, locations[node.inputs[0]])
            strides = at.strides or dense(graph.type(node.inputs[0]).shape)
            first = sum(b * s for b, s in zip(node.attrs["begin"], strides, strict=True))
            locations[node.name] = Location(at.root, at.offset + first, None if contiguous else strides)
    return locations


def _locate_view(at: Location, node: Node) -> Location:
    """Locates a view; a view of a loop's bytes has an offset in elements of its own dtype."""
    if node.op != "loop_result":
        return at
    return Location(at.root, node.attrs["start"] // numpy_dtype(node.type.dtype).itemsize)


def _is_stretch(graph: Graph, node: Node, inside: Mapping[str, tuple[Node, int]]) -> bool:
    """Tells whether a concatenation is a part of another one in which all its inputs are adjacent already.

    This is so in networks whose layers read all earlier ones: every concatenation is the beginning of the last one.
    """
    if node.op != "concat" or node.name in graph.outputs or not all(name in inside for name in node.inputs):
        return False
    other, offset = inside[node.inputs[0]]
    if other.name == node.name or other.attrs["axis"] != node.attrs["axis"]:
        return False
    for name in node.inputs:
        if inside[name][0].name != other.name or inside[name][1] != offset:
            return False
        offset += graph.type(name).shape[node.attrs["axis"]]
    return not any(_reads_dense(reader) for reader in graph.consumers()[node.name])


def _find_unaligned(
    graph: Graph, locations: Mapping[str, Location], inside: Mapping[str, tuple[Node, int]], alignment: int
) -> set[str]:
    """Collects concatenations and slices that would move a value from an aligned to an unaligned position."""

    def is_aligned(name: str) -> bool:
        return locations[name].offset * numpy_dtype(graph.type(name).dtype).itemsize % alignment == 0

    names = {whole.name for name, (whole, _) in inside.items() if is_aligned(whole.name) and not is_aligned(name)}
    slices = (node for node in graph.nodes if node.op == "slice")
    names |= {node.name for node in slices if is_aligned(node.inputs[0]) and not is_aligned(node.name)}
    joined = (n.name for n in graph.nodes if n.op == "concat" and n.name not in inside)
    return names | {name for name in joined if locations[name].root != name and not is_aligned(name)}


def _within(locations: Mapping[str, Location], outer: Node, offset: int) -> Location:
    """Locates a part of a concatenation from index `offset` of its axis on."""
    at = locations[outer.name]
    strides = at.strides or dense(outer.type.shape)
    return Location(at.root, at.offset + offset * strides[outer.attrs["axis"]], strides)


def free(graph: Graph, locations: Mapping[str, Location]) -> set[str]:
    """Collects the names of nodes without computation."""
    names = {node.name for node in graph.nodes if find(node.op).kind is Kind.view}
    for node in graph.nodes:
        if node.op == "concat" and all(_lies_in(locations, name, node) for name in node.inputs):
            names.add(node.name)
        if node.op == "slice" and locations[node.name].root != node.name:
            names.add(node.name)
    return names


def _lies_in(locations: Mapping[str, Location], name: str, outer: Node) -> bool:
    return locations[name].strides is not None and locations[name].root == locations[outer.name].root


def _written_in_place(
    graph: Graph, computed_inputs: Collection[str], apart: Collection[str]
) -> dict[str, tuple[Node, int]]:
    """Maps each value that is written into a concatenation to that one and the offset along its axis.

    Either all inputs of a concatenation are written into it, or no input. An input must be computed by a kernel of its
    own, and be neither an output of the graph nor a part of another concatenation. It must not be reshaped, which
    strided memory does not allow. Concatenations in `apart` are excluded.
    """
    consumers = graph.consumers()
    targets: dict[str, tuple[Node, int]] = {}
    joined = (n for n in reversed(graph.nodes) if n.op == "concat" and n.name not in apart)
    for node in sorted(joined, key=lambda n: -n.type.nbytes):  # the largest first: others may be parts of it
        if len(set(node.inputs)) != len(node.inputs):
            continue
        if not all(
            _can_move(graph, name, consumers[name], computed_inputs) and name not in targets for name in node.inputs
        ):
            continue
        start = 0
        for name in node.inputs:
            targets[name] = (node, start)
            start += graph.type(name).shape[node.attrs["axis"]]
    return targets


def written_by_kernels(graph: Graph, node: Node) -> set[str]:
    """Collects the inputs of a concatenation that their kernels may write into it, and into no other one."""
    consumers = graph.consumers()

    def elsewhere(name: str) -> bool:
        return any(reader.op == "concat" and reader.name != node.name for reader in consumers[name])

    return {name for name in node.inputs if _can_move(graph, name, consumers[name], ()) and not elsewhere(name)}


def _can_move(graph: Graph, name: str, readers: Sequence[Node], computed_inputs: Collection[str]) -> bool:
    node = graph.node(name)
    if node is None:
        if name not in computed_inputs:
            return False
    elif name in graph.outputs or find(node.op).kind is Kind.view or node.op == "slice":
        return False
    return not any(_reads_dense(reader) for reader in readers)


def _read_in_place(graph: Graph, node: Node, at: Location) -> bool:
    """Tells whether a slice is read in place: it takes every element between its ends, and is as dense as readers need.

    Args:
        at: location of its input.
    """
    if node.op != "slice" or any(step != 1 for step in node.attrs["step"]):
        return False
    if _is_output(graph, node.name) or node.inputs[0] in graph.constants:
        return False
    readers = graph.consumers()[node.name]
    return _is_contiguous(graph, node, at) or not any(_reads_dense(reader) for reader in readers)


def _is_output(graph: Graph, name: str) -> bool:
    """Tells whether an output has the memory of a value: it is that value, or a view of it."""
    views = (reader for reader in graph.consumers()[name] if find(reader.op).kind is Kind.view)
    return name in graph.outputs or any(_is_output(graph, view.name) for view in views)


def _is_contiguous(graph: Graph, node: Node, at: Location) -> bool:
    """Tells whether the elements of a slice of a dense value follow one another: it has whole rows of one outer row."""
    if at.strides is not None:
        return False
    size, shape = node.type.shape, graph.type(node.inputs[0]).shape
    outer = next((axis for axis, extent in enumerate(size) if extent != 1), len(size))
    return size[outer + 1 :] == shape[outer + 1 :]


def _reads_dense(reader: Node) -> bool:
    """Tells whether a reader needs dense memory: it reshapes its input, or a loop reads parts of it."""
    return find(reader.op).kind is Kind.view or reader.op == "loop"
