"""Passes: functions from graph to graph that give the same outputs with less work. See docs/passes.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from autotune.graph.ir import Graph, GraphError
from autotune.graph.loops import over_bodies
from autotune.graph.passes.channels_last import channels_last
from autotune.graph.passes.common_subexpressions import common_subexpressions, equal_bytes
from autotune.graph.passes.dead_code import dead_code
from autotune.graph.passes.dead_products import dead_products
from autotune.graph.passes.dead_taps import dead_taps
from autotune.graph.passes.fold_batch_norm import fold_batch_norm
from autotune.graph.passes.fold_constants import fold_constants
from autotune.graph.passes.planes import planes
from autotune.graph.passes.roundings import roundings
from autotune.graph.passes.simplify import simplify
from autotune.graph.passes.split_groups import split_groups
from autotune.graph.passes.split_windows import split_windows
from autotune.graph.passes.verify import verify
from search_space.operators.checks import nearest

Pass = Callable[[Graph], Graph]

PASSES: Mapping[str, Pass] = MappingProxyType(
    {
        "dead_code": dead_code,
        "fold_constants": fold_constants,
        "common_subexpressions": common_subexpressions,
        "simplify": simplify,
        "channels_last": channels_last,
        "fold_batch_norm": fold_batch_norm,
        "dead_products": dead_products,
        "dead_taps": dead_taps,
        "planes": planes,
        "split_groups": split_groups,
        "roundings": roundings,
    }
)
"""Passes by name, in the order in which they run."""

OPTIONAL: Mapping[str, Pass] = MappingProxyType({"split_windows": split_windows})
"""Passes that run where they are asked for."""

ROUNDS = 8
"""How often the passes run at most: what one opens another uses, and real networks are at rest after two or three."""

__all__ = ["OPTIONAL", "PASSES", "Pass", "find_pass", "optimise", "same_graph", "verify"]


def find_pass(name: str) -> Pass:
    """The pass of that name.

    Raises:
        ValueError: there is none.
    """
    known = {**PASSES, **OPTIONAL}
    if name not in known:
        raise ValueError(f"`passes` must be among {', '.join(known)}, but got {name!r}{nearest(name, known)}")
    return known[name]


def optimise(graph: Graph, passes: Iterable[str] | None = None) -> Graph:
    """The graph after passes, run in order, repeated until none changes it; bodies of loops go through them, too.

    Args:
        graph: stays as it is.
        passes: names among `PASSES` and `OPTIONAL`; all of `PASSES` where it is None.

    Raises:
        ValueError: an unknown pass.
        GraphError: a pass gave a graph that is none.
    """
    return _optimised(graph, [find_pass(name) for name in (PASSES if passes is None else passes)])


def _optimised(graph: Graph, chosen: Sequence[Pass]) -> Graph:
    graph = over_bodies(graph, lambda body: _optimised(body, chosen))
    verify(graph)
    for _ in range(ROUNDS):
        before = graph
        for run in chosen:
            after = run(graph)
            if not same_graph(after, graph):
                verify(after)
                _check_outputs(graph, after)
                graph = after
        if same_graph(before, graph):
            break
    return graph


def _check_outputs(before: Graph, after: Graph) -> None:
    """Holds the outputs of a graph that a pass gave against those of the graph that it was given.

    Raises:
        GraphError: they have other names or types.
    """
    wanted, found = ([*zip(g.output_names, map(g.type, g.outputs), strict=True)] for g in (before, after))
    if wanted != found:
        kinds = (", ".join(f"{name}: {kind}" for name, kind in each) for each in (wanted, found))
        raise GraphError(f"a pass must leave outputs as they are, {next(kinds)}, but got {next(kinds)}")


def same_graph(first: Graph, second: Graph) -> bool:
    """Whether two graphs are the same, node by node and byte by byte, names included."""
    if first is second:
        return True
    nodes = [[(n.name, n.op, n.inputs, dict(n.attrs), n.type) for n in graph.nodes] for graph in (first, second)]
    if nodes[0] != nodes[1] or first.outputs != second.outputs or first.inputs != second.inputs:
        return False
    if set(first.constants) != set(second.constants):
        return False
    pairs = [(array, second.constants[name]) for name, array in first.constants.items()]
    return all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs) and all(
        (a.ctypes.data, a.strides) == (b.ctypes.data, b.strides) or equal_bytes(a, b) for a, b in pairs
    )
