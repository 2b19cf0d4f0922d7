"""ONNX's `Loop` and `Scan` as one loop of the graph: where all steps have the same nodes, whatever their number is.

What depends on constants alone, such as counters, is computed at import, step after step: so it is known how many steps
there are, and what the others read of it is a sequence. Where a body needs a constant that differs from step to step,
or carries what changes its shape, there is no such loop, and `control_flow` adds each step's nodes.
"""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from autotune.graph.calls import Call, Result
from autotune.graph.errors import GraphError, ModelError
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.file import array_of
from autotune.graph.frontends.onnx.importer.nodes import MOST_FOLDED, import_nodes
from autotune.graph.frontends.onnx.importer.registry import model_of
from autotune.graph.ir import Array, Builder, Graph, TensorType, type_of
from autotune.graph.loops import Body, add_loop, loops_of
from autotune.graph.ops.loops import MOST_TRIPS
from autotune.graph.passes.dead_code import dead_code
from autotune.graph.unrolling import unrolled

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Steps:
    """What the steps of a loop are given, by the names of its body's inputs.

    Attributes:
        most: steps, unless a condition ends them before; None: there is a condition alone.
        states: their first values.
        sequences: of which each step has an element along the first axis.
        reads_back: sequences whose last element comes first.
        writes_back: of each output that is stacked whether the first step is the last.
        number: the input that is the number of the step, "" where there is none.
        condition: the input that is true, "" where there is none; else the body's first output is whether to go on.
    """

    most: int | None
    states: Mapping[str, Result]
    sequences: Mapping[str, Result] = field(default_factory=dict)
    reads_back: Collection[str] = ()
    writes_back: Sequence[bool] = ()
    number: str = ""
    condition: str = ""


@dataclass(frozen=True)
class _Inside:
    """A body as a graph, whose inputs are all that it may read.

    Attributes:
        graph: its outputs are the condition, where there is one, new values of the states, and what is stacked.
        states: those that change → the values that they become.
        stacked: values in order, one perhaps twice.
        back: which of these are stacked with the first step last.
        condition: value, "" where there is none.
    """

    graph: Graph
    states: Mapping[str, str]
    stacked: Sequence[str]
    back: Collection[str]
    condition: str


@dataclass(frozen=True)
class _Known:
    """What of a loop depends on constants alone.

    Attributes:
        count: of steps.
        stacked: outputs: (count, *shape).
        states: before each step and behind the last: (count + 1, *shape).
    """

    count: int
    stacked: Mapping[str, Array]
    states: Mapping[str, Array]


@dataclass(frozen=True)
class _Left:
    """What is left to a loop.

    Attributes:
        body: of it.
        inputs: its inputs as they are called in the model.
        outputs: its outputs as they are called in `_Inside`; what is stacked comes first.
    """

    body: Body
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def one_loop(call: Call, body: onnx.GraphProto, steps: Steps) -> list[Result] | None:
    """Last values of the states, then what is stacked along a first axis; None where there is no such loop.

    Args:
        call: of the node.
        body: its graph.
        steps: what that is given.
    """
    try:
        inside = _imported(call, body, steps)
        known = _known(call, inside, steps)
        left = _left(call, inside, known, steps)
    except (ModelError, GraphError) as error:
        _LOG.debug("%s node %r has nodes for each step: %s", call.op, call.title, error)
        return None
    ends: dict[str, Result] = {**steps.states, **{name: array[-1] for name, array in known.states.items()}}
    found: dict[str, Result] = {n: array[:: -1 if n in inside.back else 1] for n, array in known.stacked.items()}
    if left is not None:
        results = _run(call, left, known, steps, inside.back)
        found = {**results, **found}
        for name, made in inside.states.items():
            if name not in known.states:
                kept = left.body.stacked[left.outputs.index(made)]
                ends[name] = _row(call, results[made], made in inside.back) if kept else results[made]
    return [*(ends[name] for name in steps.states), *(found[name] for name in inside.stacked)]


def _imported(call: Call, body: onnx.GraphProto, steps: Steps) -> _Inside:
    """The body's graph, in which states, elements and all that it sees around it are inputs.

    Raises:
        ModelError: a node that needs a constant, or a value that is stacked both ways.
        GraphError: nodes that do not go together.
    """
    outer = model_of(call)
    ends = [value.name for value in body.output][bool(steps.condition) :]
    unchanged = {name for name, end in zip(steps.states, ends, strict=False) if _source(body, end) == name}
    fixed = {name: v for name, v in steps.states.items() if name in unchanged and not isinstance(v, str)}
    kinds = {name: _type(call, value) for name, value in steps.states.items() if name not in fixed}
    for name, value in steps.sequences.items():
        whole = _type(call, value)
        kinds[name] = TensorType(whole.shape[1:], whole.dtype)
    if steps.number:
        kinds[steps.number] = TensorType((), "int64")
    around = (name for name in read_around(body) if name not in outer.arrays and name in outer.values)
    kinds |= {name: outer.builder.type(outer.values[name]) for name in around if name not in kinds}
    seen = {name: array for name, array in outer.arrays.items() if name not in kinds}
    builder, values = Builder(call.title, kinds), {name: name for name in kinds}
    arrays = ChainMap({}, seen)
    inner = replace(outer, builder=builder, values=values, arrays=arrays, failed=dict(outer.failed), prefix="")
    inner.arrays.update({tensor.name: array_of(tensor) for tensor in body.initializer})
    inner.arrays.update({**fixed, **({steps.condition: np.array(True)} if steps.condition else {})})
    import_nodes(inner, body.node)
    inside = replace(call, context=inner)
    names = [_added(inside, inner.result(value.name)) for value in body.output]
    graph = dead_code(builder.finish(names))
    condition = names.pop(0) if steps.condition else ""
    states = {name: made for name, made in zip(steps.states, names, strict=False) if name not in unchanged}
    stacked = names[len(steps.states) :]
    ways = set(zip(stacked, steps.writes_back, strict=True))
    call.require(len(ways) == len({*stacked}), "must stack each value one way", "both")
    return _Inside(graph, states, stacked, {name for name, back in ways if back}, condition)


def _known(call: Call, inside: _Inside, steps: Steps) -> _Known:
    """Computes what depends on constants alone, until the last step.

    Raises:
        ModelError: no step, too many or too much for constants, or a condition that depends on more than constants.
        GraphError: a state that changes its type.
    """
    states = {name for name in inside.states if not isinstance(steps.states[name], str)}
    elements = {name: v for name, v in steps.sequences.items() if not isinstance(v, str)}
    while True:  # states that depend on others which are not known are not known either
        reached = _depending(inside.graph, {*states, *elements, steps.number})
        if all(inside.states[name] in reached for name in states):
            break
        states = {name for name in states if inside.states[name] in reached}
    going = inside.condition
    call.require(not going or going in reached, "must go on by a constant condition", "a computed one")
    endless = steps.most is None or steps.most > MOST_TRIPS
    call.require(not (endless and going in inside.graph.constants), f"must have at most {MOST_TRIPS} steps", "more")
    stacked = {name for name in inside.stacked if name in reached}
    graph = _part(inside.graph, [*filter(None, [going]), *(inside.states[n] for n in states), *stacked])
    now = {name: np.asarray(steps.states[name]) for name in states}
    before: dict[str, list[Array]] = {name: [array] for name, array in now.items()}
    made: dict[str, list[Array]] = {name: [] for name in stacked}
    count, size, last = 0, 0, (steps.most or 0) - 1
    while count != steps.most:
        call.require(count < MOST_TRIPS and size < MOST_FOLDED, f"must have at most {MOST_TRIPS} steps", "more")
        seen = {name: v[last - count if name in steps.reads_back else count] for name, v in elements.items()}
        feeds = {**now, **seen, steps.number: np.array(count, np.int64)}
        values = evaluate(graph, {name: np.asarray(feeds[name]) for name in graph.inputs})
        now = {name: values[inside.states[name]] for name in states}
        for lists, arrays in ((before, now), (made, {name: values[name] for name in stacked})):
            for name, array in arrays.items():
                lists[name].append(array)
                size += array.size
        count += 1
        if going and not values[going].reshape(-1)[0]:
            break
    call.require(count > 0, "must have a step", "none")
    return _Known(count, *({name: np.stack(a) for name, a in lists.items()} for lists in (made, before)))


def _left(call: Call, inside: _Inside, known: _Known, steps: Steps) -> _Left | None:
    """What is not known, None where all is.

    Raises:
        ModelError: loops within that are longer than this one, which are better loops.
        GraphError: a state that changes its type.
    """
    stacked = [name for name in dict.fromkeys(inside.stacked) if name not in known.stacked]
    states = {name: made for name, made in inside.states.items() if name not in known.states}
    outputs = (*stacked, *dict.fromkeys(made for made in states.values() if made not in stacked))
    if not outputs:
        return None
    longest = max((loop.attrs["trips"] for loop in loops_of(inside.graph)), default=0)
    call.require(longest <= known.count, f"must have loops of at most {known.count} steps within", longest)
    graph = unrolled(_part(inside.graph, outputs))
    carried = [name for name in states if name in graph.inputs]
    sequences = [name for name in (*steps.sequences, steps.number, *known.states) if name in graph.inputs]
    shared = [name for name in graph.inputs if name not in {*carried, *sequences}]
    inputs = (*carried, *sequences, *shared)
    graph = Graph(graph.name, {n: graph.inputs[n] for n in inputs}, graph.constants, graph.nodes, graph.outputs)
    kept = tuple(place < len(stacked) for place in range(len(outputs)))
    body = Body(graph, tuple(outputs.index(states[name]) for name in carried), len(sequences), kept)
    return _Left(body, inputs, outputs)


def _run(call: Call, left: _Left, known: _Known, steps: Steps, back: Collection[str]) -> dict[str, str]:
    """Adds the loop; its results by the names of its outputs."""
    given: dict[str, Result] = {steps.number: np.arange(known.count, dtype=np.int64), **steps.sequences, **steps.states}
    given |= {name: array[:-1] for name, array in known.states.items()}
    inputs = [_added(call, given[n]) if n in given else call.context.value(n) for n in left.inputs]
    first = len(left.body.carried)
    reads = [name in steps.reads_back for name in left.inputs[first : first + left.body.sequences]]
    writes = [name in back for name in left.outputs]
    title = f"{call.context.prefix}{call.title}"
    results = add_loop(call.context.builder, left.body, inputs, known.count, reads, writes, title)
    return dict(zip(left.outputs, results, strict=True))


def _depending(graph: Graph, given: Collection[str]) -> set[str]:
    """Values that depend on constants and `given` alone."""
    found = {*given, *graph.constants}
    for node in graph.nodes:
        if found.issuperset(node.inputs):
            found.add(node.name)
    return found


def _part(graph: Graph, outputs: Sequence[str]) -> Graph:
    """What some values depend on, with the inputs that this reads."""
    graph = dead_code(Graph(graph.name, graph.inputs, graph.constants, graph.nodes, tuple(outputs)))
    read = {*outputs, *(name for node in graph.nodes for name in node.inputs)}
    inputs = {name: kind for name, kind in graph.inputs.items() if name in read}
    return Graph(graph.name, inputs, graph.constants, graph.nodes, graph.outputs)


def _source(body: onnx.GraphProto, name: str) -> str:
    """The value that one is, through nodes that do nothing."""
    same = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity"}
    while name in same:
        name = same[name]
    return name


def read_around(graph: onnx.GraphProto) -> Iterator[str]:
    """Names of the values around a node that its graph reads; one may come twice."""
    own = {*(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer), ""}
    for node in graph.node:
        yield from (name for name in node.input if name not in own)
        for item in node.attribute:
            if item.HasField("g"):
                yield from (name for name in read_around(item.g) if name not in own)
        own.update(node.output)
    yield from (value.name for value in graph.output if value.name not in own)


def _type(call: Call, value: Result) -> TensorType:
    return call.context.builder.type(value) if isinstance(value, str) else type_of(value)


def _added(call: Call, value: Result) -> str:
    return value if isinstance(value, str) else call.constant(value)


def _row(call: Call, value: str, back: bool) -> str:
    """What the last step stacked."""
    trips, *shape = call.shape(value)
    begin = (0 if back else trips - 1, *(0 for _ in shape))
    return call.reshaped(call.add("slice", [value], begin=begin, size=(1, *shape)), tuple(shape))
