"""Copies of new states whose calls no order lets write over the old ones.

A call that writes a new state runs after the calls that it reads from, and after all readers of the old state. These
conditions form a cycle where states are swapped, or where a reader of the old state reads the new one as well. A call
that reads other elements of the state than it writes is a cycle of its own. A copy breaks a cycle: the new value is
computed in the arena, and a call that nothing waits for writes it to the state at the end. With all copies no cycle
remains, so that every graph has an order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from autotune.compiler.executable.accesses import Accesses, Updates
from autotune.compiler.executable.arrangement import is_by_element
from autotune.compiler.executable.scopes import Scope, make_scope
from autotune.graph.ir import Graph, GraphBuilder, Node
from autotune.graph.ops import Kind, find
from autotune.graph.views import free


@dataclass(frozen=True)
class _Part:
    """A new state, or an input of the concatenation that makes it.

    Attributes:
        name: the value.
        reader: concatenation that reads it; None: it is an output.
        position: its position among the inputs of the reader, or among the outputs.
        writers: numbers of the calls that write it.
        nbytes: its bytes.
    """

    name: str
    reader: str | None
    position: int
    writers: frozenset[int]
    nbytes: int


def separate_updates(graph: Graph, updates: Updates, alignment: int) -> Graph:
    """Adds copies of new states, so that an order of the calls lets outputs lie in the memory of inputs.

    Args:
        graph: graph that `executable_graph` returned.
        updates: outputs that share the memory of inputs.
        alignment: alignment of the target.
    """
    while parts := _choose_parts(make_scope(graph, alignment), updates):
        graph = _copy_parts(graph, parts)  # may divide calls anew
    return graph


def _choose_parts(scope: Scope, updates: Updates) -> list[_Part]:
    """Chooses parts to copy, of few bytes, so that the conditions on the order of calls have no cycle.

    The method is the local ratio of Bar-Yehuda and Even ("A local-ratio theorem for approximating the weighted vertex
    cover problem", 1985). Each cycle takes the bytes of its smallest part from all its parts. Parts without bytes left
    are copied. A part that the other copies make superfluous is dropped; the last one chosen is tried first.
    """
    accesses = Accesses(scope)
    parts = [part for name in updates.values() for part in _list_parts(scope, name)]
    part_of = {writer: part for part in parts for writer in part.writers}
    sources = [accesses.sources(number) for number in range(len(scope.groups))]
    late: dict[tuple[int, int], _Part] = {}  # reader and writer → part that the writer computes
    for _, writer, reader in accesses.late_readers(updates):
        at_once = reader == writer and is_by_element(scope, scope.groups[reader], updates)
        if not at_once and reader not in sources[writer]:
            late[reader, writer] = part_of[writer]
    left = {part: part.nbytes for part in parts}
    chosen: list[_Part] = []
    while cycle := _find_cycle(sources, late, chosen):
        within = {late[pair]: None for pair in cycle if pair in late}
        least = min(left[part] for part in within)
        for part in within:
            left[part] -= least
        chosen += [part for part in within if not left[part]]
    for part in reversed(chosen):
        rest = [each for each in chosen if each is not part]
        if not _find_cycle(sources, late, rest):
            chosen = rest
    return chosen


def _find_cycle(
    sources: Sequence[Iterable[int]], late: dict[tuple[int, int], _Part], separate: Sequence[_Part]
) -> list[tuple[int, int]]:
    """Finds a cycle of calls, each of which must run before the next.

    Returns:
        Pairs of neighbours; [] without a cycle.
    """
    before = {number: sorted(each) for number, each in enumerate(sources)}
    for (reader, writer), part in late.items():
        if part not in separate:
            before[writer].append(reader)
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        numbers: list[int] = error.args[1]
        return list(itertools.pairwise(numbers))
    return []


def _list_parts(scope: Scope, output: str) -> Iterator[_Part]:
    """Lists the parts of a new state that calls write side by side; one part if anything else reads it."""
    graph = scope.graph
    nodes = {node.name: node for node in graph.nodes}
    consumers, nothing = graph.consumers(), free(graph, scope.locations)
    numbers = {group.output: number for number, group in enumerate(scope.groups)}
    in_place = [node for node in graph.nodes if node.op == "concat" and node.name in nothing]
    joined = {node.name for node in in_place}

    def list_writers(name: str) -> Iterator[int]:
        name = _skip_views(nodes, name)[-1]
        if name in numbers:
            yield numbers[name]
        for each in nodes[name].inputs if name in joined else ():
            yield from list_writers(each)

    def list_parts(name: str, reader: str | None, position: int) -> Iterator[_Part]:
        path = _skip_views(nodes, name)
        alone = all(len(consumers[each]) + graph.outputs.count(each) == 1 for each in path)
        if alone and path[-1] in joined:
            for number, each in enumerate(nodes[path[-1]].inputs):
                yield from list_parts(each, path[-1], number)
        else:
            yield _Part(name, reader, position, frozenset(list_writers(name)), graph.type(name).nbytes)

    position = graph.output_names.index(output)
    return list_parts(graph.outputs[position], None, position)


def _skip_views(nodes: dict[str, Node], name: str) -> list[str]:
    """Lists a value, then the value that it is a view of, and so on."""
    path = [name]
    while path[-1] in nodes and find(nodes[path[-1]].op).kind is Kind.view:
        path.append(nodes[path[-1]].inputs[0])
    return path


def _copy_parts(graph: Graph, parts: Sequence[_Part]) -> Graph:
    builder = GraphBuilder(graph.name, graph.inputs, graph.output_names)
    names = {name: name for name in graph.inputs}
    names |= {name: builder.constant(array, name) for name, array in graph.constants.items()}
    edges = {(part.reader, part.position) for part in parts}

    def read(name: str, reader: str | None, position: int) -> str:
        if (reader, position) not in edges:
            return names[name]
        # A kernel ends at a view: the copy has one of its own.
        flat = builder.add("reshape", [names[name]], shape=(1, graph.type(name).size))
        return builder.add("copy", [builder.add("reshape", [flat], shape=graph.type(name).shape)])

    for node in graph.nodes:
        inputs = [read(name, node.name, position) for position, name in enumerate(node.inputs)]
        names[node.name] = builder.keep(node, graph, inputs)
    return builder.finish([read(name, None, position) for position, name in enumerate(graph.outputs)])
