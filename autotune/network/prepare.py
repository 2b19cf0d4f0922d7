"""A graph, from whichever front it comes, in the form in which a target's kernels are made of it."""

from __future__ import annotations

from collections.abc import Callable

from autotune.graph.attention import with_attention
from autotune.graph.copies import executable_graph
from autotune.graph.ir import Graph
from autotune.graph.loops import loops_of
from autotune.graph.passes import optimise
from autotune.graph.passes.roundings import roundings
from autotune.graph.passes.split_windows import split_windows
from autotune.graph.precision import FULL, lower_precision, narrow_floats
from autotune.graph.quantise import has_roundings, with_byte_layers, with_dot_products, with_image_words
from autotune.graph.unrolling import LEAST_STEPS, unrolled
from targets.base import Target


def prepared(
    graph: Graph, target: Target, precision: str = FULL, change: Callable[[Graph], Graph] | None = None
) -> Graph:
    """The graph after all passes, ready to be split into tasks.

    Args:
        graph: as an importer gives it.
        target: of its kernels.
        precision: float32: as the graph is; bfloat16 or float16: what it has in float32 is lowered to that.
        change: of the optimised graph in floats, as those that quantise are.

    Raises:
        ValueError: a precision that the graph's own 16-bit floats exclude.
    """
    graph = optimise(with_loops(graph, target, precision == FULL and change is None))
    graph = graph if change is None else change(graph)
    check_precision(graph, precision, "a graph")
    imported = with_byte_layers(graph) if precision == FULL else None
    graph = for_kernels(graph if imported is None else imported.graph, target)
    if precision != FULL:
        graph = lower_precision(graph, precision)
    return executable_graph(graph, target.alignment)


def with_loops(graph: Graph, target: Target, plain: bool) -> Graph:
    """An imported graph with those loops that are worth it where the target has loops; all others are unrolled.

    So they are where anything is not in float32: the passes that lower and quantise see no bodies.

    Args:
        graph: as an importer gives it.
        target: of its kernels.
        plain: whether neither precision nor operations of the graph will be changed behind the passes.

    Raises:
        ModelError: too many steps to unroll.
    """
    parts = [graph, *(node.attrs["body"].graph for node in loops_of(graph))]
    others = any(has_roundings(part) or narrow_floats(part) for part in parts)
    kept = plain and target.loops and not others
    return unrolled(graph, below=LEAST_STEPS if kept else None)


def check_precision(graph: Graph, precision: str, what: str) -> None:
    """Holds a precision against the 16-bit floats that a graph has itself.

    Raises:
        ValueError: the graph, which is called `what`, excludes it.
    """
    narrow = narrow_floats(graph)
    if narrow and precision not in (FULL, *narrow):
        raise ValueError(
            f"`precision` must be {FULL} or {' or '.join(narrow)} for {what} with values in {' and '.join(narrow)}, "
            f"but got {precision!r}"
        )


def for_kernels(graph: Graph, target: Target, windows: bool = True) -> Graph:
    """An optimised graph in the operations that a target has kernels for, each rounded once.

    Args:
        graph: after the passes.
        target: of its kernels.
        windows: whether windows with holes may be split, where the target wants that.
    """
    graph = with_dot_products(graph)
    if target.hardware.kind == "cpu":
        graph = with_image_words(graph)
    if windows and target.splits_windows:
        graph = split_windows(graph)
    narrow = narrow_floats(graph)
    graph = with_attention(graph, target.hardware)
    return roundings(graph) if narrow else graph
