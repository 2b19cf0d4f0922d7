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
from autotune.lab.substitutions.segments import cut, joined
from autotune.units import latency

ALPHA = 1.05
"""Graphs that cost more than this times the best are pruned (TASO's alpha)."""

FOLDING = ("dead_code", "fold_constants", "common_subexpressions", "simplify", "fold_batch_norm")
"""What runs on the graph that is found: weights that rules made of others are computed."""


@dataclass
class Found:
    """What a search found.

    Attributes:
        graph: the cheapest.
        before: seconds of the graph that it began with, by the cost given.
        after: seconds of `graph` by that cost, after folding.
        visited: graphs that rules were matched on.
        made: graphs that rules gave, duplicates included.
        used: rules on the way to `graph`, and how often.
    """

    graph: Graph
    before: float
    after: float
    visited: int
    made: int
    used: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return f"{self.used.total()} applied, modelled {latency(self.before)} -> {latency(self.after)}"

    def to_json(self) -> dict[str, Any]:
        """Plain data, without the graph: seconds by the cost, and the rules from the most frequent on."""
        return {
            "seconds_before": self.before,
            "seconds_after": self.after,
            "graphs": self.made,
            "applied": self.used.total(),
            "rules": dict(self.used.most_common()),
        }


def explore(
    graph: Graph,
    cost: Cost,
    budget: int = 5000,
    rules: Sequence[Rule] | None = None,
    segment: int = 15,
    least: float = 0.0,
) -> Found:
    """Searches a graph in segments, which are cut where one value alone goes from what is before to what is after.

    Args:
        graph: where the search begins.
        cost: of a graph, in seconds.
        budget: graphs that rules give, in all segments together; each segment has an equal share.
        rules: which may be used; the saved ones where it is None.
        segment: operations that a segment has at least, unless it is the last.
        least: part of the seconds that must be gained; the graph stays as it is where less would be.
    """
    chosen = saved_rules() if rules is None else tuple(rules)
    parts = cut(graph, segment)
    share = max(1, budget // max(1, len(parts)))
    kept, used, visited, made = list(parts), Counter[str](), 0, 0
    before = cost(graph)
    whole, seconds = graph, before
    for place, part in enumerate(parts):
        found = _backtrack(part, cost, share, chosen)
        visited, made = visited + found.visited, made + found.made
        if found.graph is part:
            continue
        # A segment does not see what comes before and after it: what it promises must be true of the whole.
        new = joined(graph, parts, [*kept[:place], found.graph, *kept[place + 1 :]])
        if (after := cost(new)) < seconds:
            whole, seconds, kept[place] = new, after, found.graph
            used += found.used
    unchanged = Found(graph, before, before, visited, made)
    if whole is graph:
        return unchanged
    new = optimise(whole, FOLDING)
    after = cost(new)
    return Found(new, before, after, visited, made, used) if after < before * (1 - least) else unchanged


def _backtrack(graph: Graph, cost: Cost, budget: int, rules: Sequence[Rule]) -> Found:
    """Best-first search: what costs more than `ALPHA` times the best is pruned."""
    order = count()
    start = cost(graph)
    best = Found(graph, start, start, 0, 0)
    queue: list[tuple[float, int, Graph, tuple[str, ...]]] = [(start, next(order), graph, ())]
    seen = {_key(graph)}
    visited = made = 0
    while queue and made < budget:
        seconds, _, current, path = heapq.heappop(queue)
        if seconds > ALPHA * best.after:
            break
        visited += 1
        for match in Matcher(current).matches(rules):
            if made == budget:
                break
            new = apply(current, match)
            made += 1
            if new is None or (key := _key(new)) in seen:
                continue
            seen.add(key)
            taken = (*path, str(match.rule))
            if (found := cost(new)) < best.after:
                best = Found(new, start, found, 0, 0, Counter(taken))
            if found <= ALPHA * best.after:
                heapq.heappush(queue, (found, next(order), new, taken))
    best.visited, best.made = visited, made
    return best


def _key(graph: Graph) -> Hashable:
    """Equal for graphs that compute the same outputs in the same way, whatever their nodes are called."""
    known: dict[str, int] = {name: hash(name) for name in (*graph.inputs, *graph.constants)}
    for node in graph.nodes:
        read = [known[name] for name in node.inputs]
        if node.op in REORDERED:
            read.sort()
        known[node.name] = hash((node.op, tuple(node.attrs.items()), tuple(read)))
    return tuple(known[name] for name in graph.outputs)
