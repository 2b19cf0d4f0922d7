"""Compilation of an imported graph into a function: the seam between PyTorch's front end and the compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.compiler.executable.graph_family import GraphAt
from autotune.compiler.executable.shapes import FIXED, ShapeSet
from autotune.graph.ir import Array, Graph
from autotune.pytorch.building import LoadedGraph, Plan, Source
from autotune.pytorch.options import Options
from autotune.pytorch.retuning import compute_digest, retune

GraphFunction = Callable[[Sequence[Array]], tuple[Array, ...]]
"""Inputs in order, as the graph takes them → outputs in order, arrays of the caller's own."""


def compile_graph(graph: Graph | GraphAt, options: Options, shapes: ShapeSet = FIXED) -> LoadedGraph:
    """Compiles a graph with its constants, and has it tuned later where the options say so.

    Args:
        graph: imported graph; for open sizes, a function from sizes to the graph.
        options: options of compiling; without `background` for open sizes.
        shapes: shapes that the executable takes.

    Raises:
        NotOpen: the graph is not one at all sizes.
        ValueError: a precision that the graph excludes, or a kernel without a legal schedule.
    """
    plan = Plan.of(options, shapes)
    ready = plan.lower(graph) if isinstance(graph, Graph) else plan.lowered_at(graph)
    best = plan.tune(plan.tasks(ready)) if options.trials and not options.background else None
    schedules = plan.schedules(best)
    if not options.background:
        return LoadedGraph(plan.build(ready, schedules))
    assert isinstance(ready, Graph), "kernels of open sizes are not tuned later"
    source = Source(ready, schedules, compute_digest(ready))
    loaded = LoadedGraph(plan.build(ready, schedules), source)
    retune(loaded, plan)
    return loaded
