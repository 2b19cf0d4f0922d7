"""Passes: rewrites of graphs that compute the same outputs with less work. See docs/passes.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from autotune.graph.ir import Graph
from autotune.graph.passes.channels_last import channels_last
from autotune.graph.passes.common_subexpressions import common_subexpressions
from autotune.graph.passes.dead_code import dead_code
from autotune.graph.passes.dead_products import dead_products
from autotune.graph.passes.dead_taps import dead_taps
from autotune.graph.passes.early_means import EarlyMeans
from autotune.graph.passes.fold_batch_norm import fold_batch_norm
from autotune.graph.passes.fold_constants import fold_constants
from autotune.graph.passes.joined_products import joined_products
from autotune.graph.passes.pipeline import FunctionPass, GraphPass, Repeat, same_graph
from autotune.graph.passes.planes import planes
from autotune.graph.passes.roundings import roundings
from autotune.graph.passes.simplify import simplify
from autotune.graph.passes.sparse_products import SparseProducts
from autotune.graph.passes.split_groups import split_groups
from autotune.graph.passes.split_windows import split_windows
from autotune.graph.passes.transposed_factors import transposed_factors
from autotune.graph.passes.verify import verify
from search_space.operators.checks import nearest

PASSES: Mapping[str, GraphPass] = MappingProxyType(
    {
        step.name: step
        for step in (
            FunctionPass("dead_code", dead_code),
            FunctionPass("fold_constants", fold_constants),
            FunctionPass("common_subexpressions", common_subexpressions),
            FunctionPass("simplify", simplify),
            FunctionPass("channels_last", channels_last),
            FunctionPass("fold_batch_norm", fold_batch_norm),
            FunctionPass("dead_products", dead_products),
            FunctionPass("dead_taps", dead_taps),
            FunctionPass("planes", planes),
            FunctionPass("split_groups", split_groups),
            FunctionPass("transposed_factors", transposed_factors),
            FunctionPass("roundings", roundings),
        )
    }
)
"""Passes by name, in the order in which they run."""

OPTIONAL: Mapping[str, GraphPass] = MappingProxyType(
    {
        step.name: step
        for step in (
            FunctionPass("split_windows", split_windows),
            FunctionPass("joined_products", joined_products),
            EarlyMeans(),
            SparseProducts(),
        )
    }
)
"""Passes that run only on request."""

ROUNDS = 8
"""Maximum number of rounds of all passes: a pass may enable another; real networks converge in two or three rounds."""

__all__ = ["OPTIONAL", "PASSES", "GraphPass", "find_pass", "optimise", "optimiser", "same_graph", "verify"]


def find_pass(name: str) -> GraphPass:
    """Looks up a pass by its name.

    Raises:
        ValueError: no pass has the name.
    """
    known = {**PASSES, **OPTIONAL}
    if name not in known:
        raise ValueError(f"`passes` must be among {', '.join(known)}, but got {name!r}{nearest(name, known)}")
    return known[name]


def optimiser(passes: Iterable[str] | None = None) -> Repeat:
    """Builds the pass that `optimise` applies.

    Raises:
        ValueError: a name is unknown.
    """
    return Repeat(tuple(find_pass(name) for name in (PASSES if passes is None else passes)), ROUNDS)


def optimise(graph: Graph, passes: Iterable[str] | None = None) -> Graph:
    """Runs passes in order and repeats them until none changes the graph; bodies of loops go through them, too.

    Args:
        graph: graph, not modified.
        passes: names from `PASSES` and `OPTIONAL`; None: all of `PASSES`.

    Raises:
        ValueError: a name is unknown.
        GraphError: a pass returned an invalid graph.
    """
    return optimiser(passes)(graph)
