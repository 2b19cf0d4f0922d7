"""Names of an imported graph: those of the ONNX values wherever a value stands for one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from autotune.graph.ir import Array, Graph, Node, without_unread_constants


def named(graph: Graph, values: Mapping[str, str], known: Mapping[str, Array], outputs: Sequence[str]) -> Graph:
    """The graph with nodes called as the ONNX values that they give, and with `outputs`.

    Args:
        graph: under the names that the builder gave.
        values: ONNX name → name in `graph`.
        known: ONNX name → constant.
        outputs: ONNX names.
    """
    nodes = {node.name for node in graph.nodes}
    final = {name: name for name in graph.inputs}
    for name in (*outputs, *values):
        value = values.get(name)
        if value in nodes:
            final.setdefault(value, name)
    taken = {*final.values(), *outputs}
    for name in (*graph.constants, *nodes):
        if name not in final:
            final[name] = _free(name, taken)
            taken.add(final[name])
    constants = {final[name]: array for name, array in graph.constants.items()}
    renamed = [Node(final[n.name], n.op, tuple(final[i] for i in n.inputs), n.attrs, n.type) for n in graph.nodes]
    present = {*graph.inputs, *constants, *(node.name for node in renamed)}
    for name in dict.fromkeys(outputs):
        if name in known:
            constants[name] = np.ascontiguousarray(known[name]).reshape(known[name].shape)
        elif name not in present:  # the same value as an input or another output: named anew by a view
            kind = graph.type(values[name])
            renamed.append(Node(name, "reshape", (final[values[name]],), {"shape": kind.shape}, kind))
    return without_unread_constants(Graph(graph.name, graph.inputs, constants, tuple(renamed), tuple(outputs)))


def _free(name: str, taken: Iterable[str]) -> str:
    number, free = 1, name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free
