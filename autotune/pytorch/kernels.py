"""From a graph to something that computes it: the seam between PyTorch's front and what makes executables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autotune.graph.ir import Array, Graph
from autotune.pytorch.building import Loaded, Plan, Source
from autotune.pytorch.options import Options
from autotune.pytorch.retuning import digest_of, retune
from search_space.ir.intervals import Span
from search_space.terms import Point

Compiled = Callable[[Sequence[Array]], tuple[Array, ...]]
"""Inputs in order, as the graph takes them → outputs in order, arrays of the caller's own."""


def compile_open(graph_at: Callable[[Point], Graph], sizes: Mapping[str, Span], options: Options) -> Loaded:
    """Compiles a graph of open sizes with its constants.

    Args:
        graph_at: sizes → the graph as an importer gives it.
        sizes: least and greatest value of each, by name.
        options: how.

    Raises:
        NotOpen: the graph is not one at all sizes.
        ValueError: as of `compile_graph`.
    """
    return Loaded(Plan.of(options).built_open(graph_at, sizes))


def compile_graph(graph: Graph, options: Options) -> Loaded:
    """Compiles a graph with its constants, and has it tuned later where the options say so.

    Args:
        graph: as an importer gives it.
        options: how.

    Raises:
        ValueError: a precision that the graph excludes, or a kernel without a legal schedule.
    """
    plan = Plan.of(options)
    ready = plan.lowered(graph)
    best = plan.tuned(plan.tasks(ready)) if options.trials and not options.background else None
    schedules = plan.schedules(best)
    source = Source(ready, schedules, digest_of(ready)) if options.background else None
    loaded = Loaded(plan.built(ready, schedules), source)
    if options.background:
        retune(loaded, plan)
    return loaded
