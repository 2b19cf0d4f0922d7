"""Copies that a graph needs before it can be compiled: outputs of their own, and parts of concatenations.

A concatenation is written by its inputs' kernels where that is possible (`autotune.graph.views`). An input that lies
elsewhere is copied to its place: that is a loop at the speed of memory, where one kernel for the whole would choose
among all inputs for each element.
"""

from __future__ import annotations

import math

from autotune.graph.decisions import decided
from autotune.graph.ir import Builder, Graph, Node
from autotune.graph.loops import loops_of, over_bodies
from autotune.graph.views import free, locate, written_by_kernels
from search_space.dtypes import numpy_dtype

LEAST_BYTES = 32 << 10
"""Bytes of a concatenation below which one kernel for all of it costs less than starting one for each input."""


def executable_graph(graph: Graph, alignment: int = 1) -> Graph:
    """The graph with a copy of each value that no kernel would write where it has to be.

    Those are outputs that are inputs, constants, views of them, results of loops, or given out twice; and inputs of
    large concatenations that are constants, inputs of the graph, seen in another shape, or lie in another
    concatenation. So it is in the bodies of loops.

    Args:
        graph: stays as it is.
        alignment: bytes of which the place of every value must be a multiple, see `locate`.
    """
    graph = over_bodies(graph, lambda body: executable_graph(body, alignment))
    return _with_outputs(_with_parts(graph, alignment))


def _with_outputs(graph: Graph) -> Graph:
    locations = locate(graph, in_place=False)
    loops = {node.name for node in loops_of(graph)}
    seen: set[str] = set()
    copied = set()
    for place, name in enumerate(graph.outputs):
        root = locations[name].root
        # The caller's arrays and the weights are nobody's to give away, and each output is an array of its own, which
        # that of a loop, with all of its results, is not.
        if root in graph.inputs or root in graph.constants or root in seen or root in loops:
            copied.add(place)
        seen.add(root)
    if not copied:
        return graph
    builder = _begun(graph)
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
    builder = _begun(graph)
    for node in graph.nodes:
        inputs = list(node.inputs)
        if node.name in movable:
            for place, name in enumerate(inputs):
                # A kernel writes its value to one place: the second time it is a copy.
                if name not in movable[node.name] or name in inputs[:place]:
                    inputs[place] = builder.add("copy", [name])
        builder.add(node.op, inputs, node.name, **node.attrs)
    return builder.finish(graph.outputs)


def _worth_it(graph: Graph, node: Node, alignment: int) -> bool:
    if not decided("copy", node.name, node.type.nbytes >= LEAST_BYTES):
        return False
    axis = node.attrs["axis"]
    row = math.prod(node.type.shape[axis + 1 :]) * numpy_dtype(node.type.dtype).itemsize
    return all(graph.type(name).shape[axis] * row % alignment == 0 for name in node.inputs)


def _begun(graph: Graph) -> Builder:
    builder = Builder(graph.name, graph.inputs, graph.output_names)
    for name, array in graph.constants.items():
        builder.constant(array, name)
    return builder
