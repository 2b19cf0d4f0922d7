"""From a graph to something that computes it: the seam between PyTorch's front and what makes executables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.graph.ir import Array, Graph
from autotune.network.prepare import prepared
from autotune.pytorch.building import Loaded, Plan, Source
from autotune.pytorch.options import Options
from autotune.pytorch.retuning import digest_of, retune

Compiled = Callable[[Sequence[Array]], tuple[Array, ...]]
"""Inputs in order, as the graph takes them → outputs in order, arrays of the caller's own."""


def compile_graph(graph: Graph, options: Options) -> Loaded:
    """Compiles a graph with its constants, and has it tuned later where the options say so.

    Args:
        graph: as an importer gives it.
        options: how.

    Raises:
        ValueError: a precision that the graph excludes, or a kernel without a legal schedule.
    """
    plan = Plan.of(options)
    ready = prepared(graph, plan.settings.target, options.precision)
    best = plan.tuned(plan.tasks(ready)) if options.trials and not options.background else {}
    schedules = plan.schedules(best)
    source = Source(ready, schedules, digest_of(ready)) if options.background else None
    loaded = Loaded(plan.built(ready, schedules), source)
    if options.background:
        retune(loaded, plan)
    return loaded
