"""States: inputs whose last rows a network computes, and writes where they lie.

An `extended` node replaces the last rows of an input. It has no memory of its own: its consumers read the input, and
the rows are an output, which the caller of the network must place at the end of the input.
"""

from __future__ import annotations

from autotune.compiler.executable.scopes import Scope
from targets.base import BuildError


def list_states(scope: Scope) -> list[tuple[str, str]]:
    """Lists input and output of each state of a graph, in order.

    Raises:
        BuildError: the extended value is no input of its own, or the rows are no output as their kernel writes them.
    """
    graph, states = scope.graph, []
    for node in graph.nodes:
        if node.op != "extended":
            continue
        state, rows = node.inputs
        outputs = [
            name
            for value, name in zip(graph.outputs, graph.output_names, strict=True)
            if scope.locations[value] == scope.locations[rows]
        ]
        if state not in graph.inputs or len(graph.consumers()[state]) != 1:
            raise BuildError(f"a state must be an input that nothing else reads, but got {state!r}")
        if not outputs or scope.root(rows) in graph.inputs:
            raise BuildError(f"rows of a state must be an output that a kernel computes, but got {rows!r}")
        states.append((state, outputs[0]))
    return states
