"""Cost-based backtracking search over graphs that rules make of each other (TASO, algorithm 2; Jia et al., 2019)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from autotune.graph.ir import Graph
from autotune.graph.passes import optimise
from autotune.graph.passes.common_subexpressions import COMMUTATIVE as REORDERED
from autotune.lab.substitutions.cost import Cost
from autotune.lab.substitutions.matching import Matcher, apply
from autotune.lab.substitutions.rules import Rule, saved_rules
from autotune.lab.substitutions.segments import cut, join_segments
from autotune.units import latency

ALPHA = 1.05
"""Graphs that cost more than this times the best are pruned (TASO's alpha)."""

FOLDING = ("dead_code", "fold_constants", "common_subexpressions", "simplify", "fold_batch_norm")
"""Passes on the graph of the result: they compute weights that rules made of others."""


@dataclass
class SearchOutcome:
    """Result of a search.

    Attributes:
        graph: cheapest graph.
        before: seconds of the initial graph, by the cost function.
        after: seconds of `graph` by that cost, after folding.
        visited_count: graphs that rules were matched on.
        generated_count: graphs that rules produced, duplicates included.
        rule_counts: rules on the way to `graph`, and how often.
    """

    graph: Graph
    before: float
    after: float
    visited_count: int
    generated_count: int
    rule_counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return f"{self.rule_counts.total()} applied, modelled {latency(self.before)} -> {latency(self.after)}"

    def to_json(self) -> dict[str, Any]:
        """Converts the result to plain data, without the graph; the most frequent rules come first."""
        return {
            "seconds_before": self.before,
            "seconds_after": self.after,
            "graphs": self.generated_count,
            "applied": self.rule_counts.total(),
            "rules": dict(self.rule_counts.most_common()),
        }


def explore(
    graph: Graph,
    cost: Cost,
    budget: int = 5000,
    rules: Sequence[Rule] | None = None,
    segment: int = 15,
    least: float = 0.0,
) -> SearchOutcome:
    """Searches a graph in segments, which are cut where one value alone is passed on.

    Args:
        graph: graph that the search begins with.
        cost: cost function, graph → seconds.
        budget: number of graphs to produce in all segments; each segment has an equal share.
        rules: rules to use; None: the saved ones.
        segment: least number of operations of a segment, but for the last.
        least: least share of the seconds to gain; with less gain the graph stays unchanged.
    """
    chosen = saved_rules() if rules is None else tuple(rules)
    parts = cut(graph, segment)
    share = max(1, budget // max(1, len(parts)))
    segments, used, visited, produced = list(parts), Counter[str](), 0, 0
    before = cost(graph)
    current, seconds = graph, before
    for index, part in enumerate(parts):
        result = _backtrack(part, cost, share, chosen)
        visited, produced = visited + result.visited_count, produced + result.generated_count
        if result.graph is part:
            continue
        # A segment does not see what comes before and after it: what it promises must be true of the whole.
        new = join_segments(graph, parts, [*segments[:index], result.graph, *segments[index + 1 :]])
        if (after := cost(new)) < seconds:
            current, seconds, segments[index] = new, after, result.graph
            used += result.rule_counts
    unchanged = SearchOutcome(graph, before, before, visited, produced)
    if current is graph:
        return unchanged
    new = optimise(current, FOLDING)
    after = cost(new)
    return SearchOutcome(new, before, after, visited, produced, used) if after < before * (1 - least) else unchanged


def _backtrack(graph: Graph, cost: Cost, budget: int, rules: Sequence[Rule]) -> SearchOutcome:
    """Searches best first; graphs that cost more than `ALPHA` times the best are pruned."""
    order = count()
    start = cost(graph)
    best = SearchOutcome(graph, start, start, 0, 0)
    queue: list[tuple[float, int, Graph, tuple[str, ...]]] = [(start, next(order), graph, ())]
    seen = {_key(graph)}
    visited = produced = 0
    while queue and produced < budget:
        seconds, _, current, path = heapq.heappop(queue)
        if seconds > ALPHA * best.after:
            break
        visited += 1
        for match in Matcher(current).matches(rules):
            if produced == budget:
                break
            new = apply(current, match)
            produced += 1
            if new is None or (key := _key(new)) in seen:
                continue
            seen.add(key)
            steps = (*path, str(match.rule))
            if (found := cost(new)) < best.after:
                best = SearchOutcome(new, start, found, 0, 0, Counter(steps))
            if found <= ALPHA * best.after:
                heapq.heappush(queue, (found, next(order), new, steps))
    best.visited_count, best.generated_count = visited, produced
    return best


def _key(graph: Graph) -> Hashable:
    """Computes a key that is equal for graphs of the same computation, independent of the nodes' names."""
    hashes: dict[str, int] = {name: hash(name) for name in (*graph.inputs, *graph.constants)}
    for node in graph.nodes:
        read = [hashes[name] for name in node.inputs]
        if node.op in REORDERED:
            read.sort()
        hashes[node.name] = hash((node.op, tuple(node.attrs.items()), tuple(read)))
    return tuple(hashes[name] for name in graph.outputs)
