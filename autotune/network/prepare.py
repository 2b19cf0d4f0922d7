"""A graph, from whichever front it comes, in the form in which a target's kernels are made of it."""

from __future__ import annotations

from autotune.graph.attention import with_attention
from autotune.graph.copies import executable_graph
from autotune.graph.ir import Graph
from autotune.graph.passes import optimise
from autotune.graph.passes.roundings import roundings
from autotune.graph.passes.split_windows import split_windows
from autotune.graph.precision import FULL, lower_precision, narrow_floats
from autotune.graph.quantise import with_dot_products
from targets.base import Target


def prepared(graph: Graph, target: Target, precision: str = FULL) -> Graph:
    """The graph after all passes, ready to be split into tasks.

    Args:
        graph: as an importer gives it.
        target: of its kernels.
        precision: float32: as the graph is; bfloat16 or float16: what it has in float32 is lowered to that.

    Raises:
        ValueError: a precision that the graph's own 16-bit floats exclude.
    """
    graph = optimise(graph)
    narrow = narrow_floats(graph)
    if narrow and precision not in (FULL, *narrow):
        raise ValueError(
            f"`precision` must be {FULL} or {' or '.join(narrow)} for a graph with values in {' and '.join(narrow)}, "
            f"but got {precision!r}"
        )
    graph = with_dot_products(graph)
    if target.splits_windows:
        graph = split_windows(graph)
    graph = with_attention(graph, target.hardware)
    if narrow:
        graph = roundings(graph)
    if precision != FULL:
        graph = lower_precision(graph, precision)
    return executable_graph(graph, target.alignment)
