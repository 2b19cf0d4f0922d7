"""Loops unrolled to nodes of the graph, step by step, for passes and targets without loops.

Elements of sequences become slices, and stacked outputs parts of one concatenation, both along the first axis. So they
are read and written in place, see `autotune.graph.views`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.graph.errors import GraphError, UnsupportedModelError
from autotune.graph.ir import Graph, GraphBuilder, Node, rewrite
from autotune.graph.loops import Body, list_loops
from autotune.graph.passes.simplify.views import MOST_PARTS

MOST_STEPS = 1024
"""Maximum steps of an unrolled loop, as each step adds nodes of its own."""

LEAST_STEPS = 8
"""Minimum steps of a loop that stays one: below, the cheaper first step, whose states are mostly zeros, matters."""

Steps = list[list[str]]
"""Names of the outputs of each step, in the order in which steps run."""


def unroll(graph: Graph, below: int | None = None) -> Graph:
    """Unrolls the loops of a graph, or those of fewer than `below` steps.

    Raises:
        UnsupportedModelError: a loop has more than `MOST_STEPS` steps.
        GraphError: a node or output reads the bytes of a loop instead of its results.
    """
    if all(below is not None and node.attrs["trips"] >= below for node in list_loops(graph)):
        return graph
    made: dict[str, tuple[Node, Steps]] = {}

    def visit(builder: GraphBuilder, node: Node, inputs: list[str]) -> str | None:
        if node.op == "loop" and (below is None or node.attrs["trips"] < below):
            _check_readers(graph, node)
            made[node.name] = node, _steps(builder, node, inputs)
            return made[node.name][1][-1][0]  # never read
        if node.op == "loop_result" and node.inputs[0] in made:
            return _result(builder, *made[node.inputs[0]], node.attrs["place"])
        if node.op == "slice":
            return _row(graph, builder, made, node)
        return None

    return rewrite(graph, visit)


def _check_readers(graph: Graph, loop: Node) -> None:
    others = [node.name for node in graph.consumers()[loop.name] if node.op != "loop_result"]
    if others or loop.name in graph.outputs:
        raise GraphError(
            f"the bytes of loop {loop.name!r} must be read as its results alone, but got {(*others, 'an output')[0]}"
        )


def _steps(builder: GraphBuilder, node: Node, inputs: Sequence[str]) -> Steps:
    body, trips = node.attrs["body"], node.attrs["trips"]
    if trips > MOST_STEPS:
        raise UnsupportedModelError(
            f"loop {node.name!r} must have at most {MOST_STEPS} steps where it is unrolled, but got {trips}"
        )
    count = len(body.state_outputs)
    states, sequences, shared = inputs[:count], inputs[count : count + body.sequences], inputs[count + body.sequences :]
    rows = [_flat(builder, name) for name in sequences]
    constants = {name: builder.constant(array, name) for name, array in body.graph.constants.items()}
    steps: Steps = []
    for step in range(trips):
        elements = [
            _element(builder, flat, kind.shape, trips - 1 - step if back else step)
            for flat, kind, back in zip(rows, body.inputs[count:], node.attrs["reads_back"], strict=False)
        ]
        steps.append(_step(builder, body, constants, [*states, *elements, *shared]))
        states = [steps[-1][number] for number in body.state_outputs]
    return steps


def _step(builder: GraphBuilder, body: Body, constants: Mapping[str, str], inputs: Sequence[str]) -> list[str]:
    names = {**constants, **dict(zip(body.graph.inputs, inputs, strict=True))}
    for node in body.graph.nodes:
        names[node.name] = builder.add(node.op, [names[name] for name in node.inputs], node.name, **node.attrs)
    return [names[name] for name in body.graph.outputs]


def _flat(builder: GraphBuilder, name: str) -> str:
    """Joins the elements of a sequence along their own first axis."""
    trips, *shape = builder.type(name).shape
    if not shape:
        return name
    return builder.add("reshape", [name], shape=(trips * shape[0], *shape[1:]))


def _element(builder: GraphBuilder, flat: str, shape: tuple[int, ...], index: int) -> str:
    """Slices an element of a sequence; an element without axes is reshaped."""
    size = shape or (1,)
    element = builder.add("slice", [flat], begin=(index * size[0], *(0 for _ in size[1:])), size=size)
    return element if shape else builder.add("reshape", [element], shape=())


def _result(builder: GraphBuilder, node: Node, steps: Steps, number: int) -> str:
    if not node.attrs["body"].stacked[number]:
        return steps[-1][number]
    shape = node.attrs["body"].outputs[number].shape
    parts = [step[number] for step in _in_order(node, steps, number)]
    if not shape:
        parts = [builder.add("reshape", [part], shape=(1,)) for part in parts]
    while len(parts) > MOST_PARTS:
        groups = [parts[i : i + MOST_PARTS] for i in range(0, len(parts), MOST_PARTS)]
        parts = [builder.add("concat", group, axis=0) for group in groups]
    whole = parts[0] if len(parts) == 1 else builder.add("concat", parts, axis=0)
    return builder.add("reshape", [whole], shape=(len(steps), *shape))


def _in_order(node: Node, steps: Steps, number: int) -> Steps:
    """Returns the steps in the order in which their outputs are stacked."""
    return steps[::-1] if node.attrs["writes_back"][number] else steps


def _row(graph: Graph, builder: GraphBuilder, loops: Mapping[str, tuple[Node, Steps]], node: Node) -> str | None:
    """Replaces a slice of one step of a stacked output by the value of that step."""
    source = graph.node(node.inputs[0])
    if source is None or source.op != "loop_result" or source.inputs[0] not in loops:
        return None
    loop, steps = loops[source.inputs[0]]
    number, begin, size = source.attrs["place"], node.attrs["begin"], node.attrs["size"]
    if not loop.attrs["body"].stacked[number] or size != (1, *source.type.shape[1:]):
        return None
    step = _in_order(loop, steps, number)[begin[0]]
    return builder.add("reshape", [step[number]], shape=size)
