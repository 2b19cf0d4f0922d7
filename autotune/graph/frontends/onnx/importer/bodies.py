"""ONNX's `Loop` and `Scan` as one loop of the graph, if all steps have the same nodes.

Values that depend on constants alone, such as counters, are computed at import, step by step. This gives the number of
steps, and these values become sequences for the other nodes. If a body needs a constant that differs from step to step,
or the shape of a state changes, `control_flow` adds each step's nodes instead.
"""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from autotune.graph.calls import Call, Result
from autotune.graph.errors import GraphError, UnsupportedModelError
from autotune.graph.evaluate import evaluate
from autotune.graph.frontends.onnx.file import read_array
from autotune.graph.frontends.onnx.importer.nodes import MOST_FOLDED, import_nodes
from autotune.graph.frontends.onnx.importer.registry import get_model_context
from autotune.graph.ir import Array, Graph, GraphBuilder, TensorType, array_type
from autotune.graph.loops import Body, add_loop, list_loops
from autotune.graph.ops.loops import MOST_TRIPS
from autotune.graph.passes.dead_code import dead_code
from autotune.graph.unrolling import unroll

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Steps:
    """The inputs of a loop's steps, by the names of its body's inputs.

    Attributes:
        most: maximum number of steps; None: only a condition ends the loop.
        states: initial values of the states.
        sequences: sequences whose elements along the first axis the steps read in turn.
        reads_back: sequences that are read from the last element to the first.
        writes_back: whether each stacked output is stacked from the last step to the first.
        number: name of the input for the step's number; "": none.
        condition: name of the input that is true in every step; "": none. With one, the body's first output
            tells whether to go on.
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
    """A body as a graph whose inputs are all values that it may read.

    Attributes:
        graph: graph whose outputs are the condition, if any, the new states, and the stacked values.
        states: states that change → values that they become.
        stacked_values: stacked values in order, possibly with repetitions.
        back: stacked values whose first step comes last.
        condition: value of the condition; "": none.
    """

    graph: Graph
    states: Mapping[str, str]
    stacked_values: Sequence[str]
    back: Collection[str]
    condition: str


@dataclass(frozen=True)
class _ConstantSteps:
    """The values of a loop that depend on constants alone.

    Attributes:
        count: number of steps.
        stacked_outputs: stacked outputs, (count, *shape).
        states: states before each step and after the last, (count + 1, *shape).
    """

    count: int
    stacked_outputs: Mapping[str, Array]
    states: Mapping[str, Array]


@dataclass(frozen=True)
class _Left:
    """The part of a loop that depends on more than constants.

    Attributes:
        body: body of the loop.
        inputs: names of its inputs in the model.
        outputs: names of its outputs in `_Inside`; stacked ones come first.
    """

    body: Body
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def one_loop(call: Call, body: onnx.GraphProto, steps: Steps) -> list[Result] | None:
    """Adds one loop; returns the final states, then the stacked values; None if the steps' nodes differ.

    Args:
        call: call of the node.
        body: graph of the loop's body.
        steps: inputs of the steps.
    """
    try:
        inside = _import_body(call, body, steps)
        constant = _constant_steps(call, inside, steps)
        left = _left(call, inside, constant, steps)
    except (UnsupportedModelError, GraphError) as error:
        _LOG.debug("%s node %r has nodes for each step: %s", call.op, call.title, error)
        return None
    ends: dict[str, Result] = {**steps.states, **{name: array[-1] for name, array in constant.states.items()}}
    stacks: dict[str, Result] = {
        n: array[:: -1 if n in inside.back else 1] for n, array in constant.stacked_outputs.items()
    }
    if left is not None:
        results = _run(call, left, constant, steps, inside.back)
        stacks = {**results, **stacks}
        for name, made in inside.states.items():
            if name not in constant.states:
                kept = left.body.stacked[left.outputs.index(made)]
                ends[name] = _row(call, results[made], made in inside.back) if kept else results[made]
    return [*(ends[name] for name in steps.states), *(stacks[name] for name in inside.stacked_values)]


def _import_body(call: Call, body: onnx.GraphProto, steps: Steps) -> _Inside:
    """Imports the body as a graph whose inputs are states, elements and all values around it.

    Raises:
        UnsupportedModelError: a node needs a constant, or a value is stacked in both directions.
        GraphError: nodes do not fit together.
    """
    outer = get_model_context(call)
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
    builder, values = GraphBuilder(call.title, kinds), {name: name for name in kinds}
    arrays = ChainMap({}, seen)
    inner = replace(outer, builder=builder, values=values, arrays=arrays, failures=dict(outer.failures), prefix="")
    inner.arrays.update({tensor.name: read_array(tensor) for tensor in body.initializer})
    inner.arrays.update({**fixed, **({steps.condition: np.array(True)} if steps.condition else {})})
    import_nodes(inner, body.node)
    inside = replace(call, context=inner)
    names = [_ensure_value(inside, inner.result(value.name)) for value in body.output]
    graph = dead_code(builder.finish(names))
    condition = names.pop(0) if steps.condition else ""
    states = {name: made for name, made in zip(steps.states, names, strict=False) if name not in unchanged}
    stacked = names[len(steps.states) :]
    ways = set(zip(stacked, steps.writes_back, strict=True))
    call.require(len(ways) == len({*stacked}), "must stack each value one way", "both")
    return _Inside(graph, states, stacked, {name for name, back in ways if back}, condition)


def _constant_steps(call: Call, inside: _Inside, steps: Steps) -> _ConstantSteps:
    """Computes the values that depend on constants alone, for all steps.

    Raises:
        UnsupportedModelError: the loop has no step, or too many; constants are too large; or its condition is not
            constant.
        GraphError: a state changes its type.
    """
    states = {name for name in inside.states if not isinstance(steps.states[name], str)}
    elements = {name: v for name, v in steps.sequences.items() if not isinstance(v, str)}
    while True:  # states that depend on states that are not constant are not constant either
        reached = _depending(inside.graph, {*states, *elements, steps.number})
        if all(inside.states[name] in reached for name in states):
            break
        states = {name for name in states if inside.states[name] in reached}
    going = inside.condition
    call.require(not going or going in reached, "must go on by a constant condition", "a computed one")
    endless = steps.most is None or steps.most > MOST_TRIPS
    call.require(not (endless and going in inside.graph.constants), f"must have at most {MOST_TRIPS} steps", "more")
    stacked = {name for name in inside.stacked_values if name in reached}
    graph = _part(inside.graph, [*filter(None, [going]), *(inside.states[n] for n in states), *stacked])
    now = {name: np.asarray(steps.states[name]) for name in states}
    before: dict[str, list[Array]] = {name: [array] for name, array in now.items()}
    outputs: dict[str, list[Array]] = {name: [] for name in stacked}
    count, size, last = 0, 0, (steps.most or 0) - 1
    while count != steps.most:
        call.require(count < MOST_TRIPS and size < MOST_FOLDED, f"must have at most {MOST_TRIPS} steps", "more")
        seen = {name: v[last - count if name in steps.reads_back else count] for name, v in elements.items()}
        feeds = {**now, **seen, steps.number: np.array(count, np.int64)}
        values = evaluate(graph, {name: np.asarray(feeds[name]) for name in graph.inputs})
        now = {name: values[inside.states[name]] for name in states}
        for lists, arrays in ((before, now), (outputs, {name: values[name] for name in stacked})):
            for name, array in arrays.items():
                lists[name].append(array)
                size += array.size
        count += 1
        if going and not values[going].reshape(-1)[0]:
            break
    call.require(count > 0, "must have a step", "none")
    return _ConstantSteps(count, *({name: np.stack(a) for name, a in lists.items()} for lists in (outputs, before)))


def _left(call: Call, inside: _Inside, constant: _ConstantSteps, steps: Steps) -> _Left | None:
    """Returns the part of the loop that is not constant; None if all is.

    Raises:
        UnsupportedModelError: a loop within is longer than this one, and so is the better loop.
        GraphError: a state changes its type.
    """
    stacked = [name for name in dict.fromkeys(inside.stacked_values) if name not in constant.stacked_outputs]
    states = {name: made for name, made in inside.states.items() if name not in constant.states}
    outputs = (*stacked, *dict.fromkeys(made for made in states.values() if made not in stacked))
    if not outputs:
        return None
    longest = max((loop.attrs["trips"] for loop in list_loops(inside.graph)), default=0)
    call.require(longest <= constant.count, f"must have loops of at most {constant.count} steps within", longest)
    graph = unroll(_part(inside.graph, outputs))
    carried = [name for name in states if name in graph.inputs]
    sequences = [name for name in (*steps.sequences, steps.number, *constant.states) if name in graph.inputs]
    shared = [name for name in graph.inputs if name not in {*carried, *sequences}]
    inputs = (*carried, *sequences, *shared)
    graph = Graph(graph.name, {n: graph.inputs[n] for n in inputs}, graph.constants, graph.nodes, graph.outputs)
    kept = tuple(place < len(stacked) for place in range(len(outputs)))
    body = Body(graph, tuple(outputs.index(states[name]) for name in carried), len(sequences), kept)
    return _Left(body, inputs, outputs)


def _run(call: Call, left: _Left, constant: _ConstantSteps, steps: Steps, back: Collection[str]) -> dict[str, str]:
    """Adds the loop, and returns its results by the names of its outputs."""
    initial: dict[str, Result] = {
        steps.number: np.arange(constant.count, dtype=np.int64),
        **steps.sequences,
        **steps.states,
    }
    initial |= {name: array[:-1] for name, array in constant.states.items()}
    inputs = [_ensure_value(call, initial[n]) if n in initial else call.context.value(n) for n in left.inputs]
    first = len(left.body.state_outputs)
    reads = [name in steps.reads_back for name in left.inputs[first : first + left.body.sequences]]
    writes = [name in back for name in left.outputs]
    title = f"{call.context.prefix}{call.title}"
    results = add_loop(call.context.builder, left.body, inputs, constant.count, reads, writes, title)
    return dict(zip(left.outputs, results, strict=True))


def _depending(graph: Graph, sources: Collection[str]) -> set[str]:
    """Lists the values that depend only on constants and `sources`."""
    values = {*sources, *graph.constants}
    for node in graph.nodes:
        if values.issuperset(node.inputs):
            values.add(node.name)
    return values


def _part(graph: Graph, outputs: Sequence[str]) -> Graph:
    """Cuts a graph to the nodes and inputs that some values depend on."""
    graph = dead_code(Graph(graph.name, graph.inputs, graph.constants, graph.nodes, tuple(outputs)))
    read = {*outputs, *(name for node in graph.nodes for name in node.inputs)}
    inputs = {name: kind for name, kind in graph.inputs.items() if name in read}
    return Graph(graph.name, inputs, graph.constants, graph.nodes, graph.outputs)


def _source(body: onnx.GraphProto, name: str) -> str:
    """Traces a value back through Identity nodes."""
    same = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity"}
    while name in same:
        name = same[name]
    return name


def read_around(graph: onnx.GraphProto) -> Iterator[str]:
    """Yields names of outer values that a node's graph reads; names may repeat."""
    own = {*(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer), ""}
    for node in graph.node:
        yield from (name for name in node.input if name not in own)
        for item in node.attribute:
            if item.HasField("g"):
                yield from (name for name in read_around(item.g) if name not in own)
        own.update(node.output)
    yield from (value.name for value in graph.output if value.name not in own)


def _type(call: Call, value: Result) -> TensorType:
    return call.context.builder.type(value) if isinstance(value, str) else array_type(value)


def _ensure_value(call: Call, value: Result) -> str:
    return value if isinstance(value, str) else call.constant(value)


def _row(call: Call, value: str, back: bool) -> str:
    """Selects the element that the last step stacked."""
    trips, *shape = call.shape(value)
    begin = (0 if back else trips - 1, *(0 for _ in shape))
    return call.reshape(call.add("slice", [value], begin=begin, size=(1, *shape)), tuple(shape))
