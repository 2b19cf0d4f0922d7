"""Copies that a graph needs before compilation: separate outputs, and parts of concatenations.

Kernels of the inputs write a concatenation in place if possible (`autotune.graph.views`). An input elsewhere in memory
is copied to its position, a loop at the speed of memory. One kernel for the whole would select among all inputs for
each element.
"""

from __future__ import annotations

import math

from autotune.graph.decisions import decide
from autotune.graph.ir import Graph, GraphBuilder, Node
from autotune.graph.loops import list_loops, over_bodies
from autotune.graph.views import free, locate, written_by_kernels
from search_space.dtypes import numpy_dtype

LEAST_BYTES = 32 << 10
"""Minimum bytes of a concatenation for separate copies: a smaller one costs less as one kernel."""


def executable_graph(graph: Graph, alignment: int = 1) -> Graph:
    """Adds a copy of each value that no kernel would write to its required position.

    Copied outputs are inputs, constants, views of these, results of loops, or repeated outputs. Copied inputs of large
    concatenations are constants, inputs of the graph, seen in another shape, or part of another concatenation. Bodies
    of loops get copies, too.

    Args:
        graph: graph, not modified.
        alignment: bytes to which every value must be aligned, see `locate`.
    """
    graph = over_bodies(graph, lambda body: executable_graph(body, alignment))
    return _with_outputs(_with_parts(graph, alignment))


def _with_outputs(graph: Graph) -> Graph:
    locations = locate(graph, in_place=False)
    loops = {node.name for node in list_loops(graph)}
    seen: set[str] = set()
    copied = set()
    for number, name in enumerate(graph.outputs):
        root = locations[name].root
        # Arrays of the caller and weights must not be given away, and each output must be an array of its own, unlike
        # those of a loop, which share memory with all of its results.
        if root in graph.inputs or root in graph.constants or root in seen or root in loops:
            copied.add(number)
        seen.add(root)
    if not copied:
        return graph
    builder = _start_builder(graph)
    for node in graph.nodes:
        builder.add(node.op, node.inputs, node.name, **node.attrs)
    outputs = [builder.add("copy", [n]) if i in copied else n for i, n in enumerate(graph.outputs)]
    return builder.finish(outputs)


def _with_parts(graph: Graph, alignment: int) -> Graph:
    nothing = free(graph, locate(graph, alignment=alignment))
    joined = [n for n in graph.nodes if n.op == "concat" and n.name not in nothing and _worth_it(graph, n, alignment)]
    if not joined:
        return graph
    movable = {node.name: written_by_kernels(graph, node) for node in joined}
    builder = _start_builder(graph)
    for node in graph.nodes:
        inputs = list(node.inputs)
        if node.name in movable:
            for place, name in enumerate(inputs):
                # A kernel writes its value to one position: the second one needs a copy.
                if name not in movable[node.name] or name in inputs[:place]:
                    inputs[place] = builder.add("copy", [name])
        builder.add(node.op, inputs, node.name, **node.attrs)
    return builder.finish(graph.outputs)


def _worth_it(graph: Graph, node: Node, alignment: int) -> bool:
    if not decide("copy", node.name, node.type.nbytes >= LEAST_BYTES):
        return False
    axis = node.attrs["axis"]
    row = math.prod(node.type.shape[axis + 1 :]) * numpy_dtype(node.type.dtype).itemsize
    return all(graph.type(name).shape[axis] * row % alignment == 0 for name in node.inputs)


def _start_builder(graph: Graph) -> GraphBuilder:
    builder = GraphBuilder(graph.name, graph.inputs, graph.output_names)
    for name, array in graph.constants.items():
        builder.constant(array, name)
    return builder
