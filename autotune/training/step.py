"""The graph of a training step: a forward graph, its gradients, and an optimiser.

All parameters lie in one array, and so does each state of the optimiser. Kernels read a parameter where it lies.
A large parameter is updated by kernels of its own, as soon as its gradient exists, so that gradients need not live
together. The small ones are updated together. New states may be written over the old ones, see `TrainingGraph.updates`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.graph.errors import GraphError
from autotune.graph.gradient.reverse import add_gradients, find_dependencies, remove_stops
from autotune.graph.ir import Array, Graph, GraphBuilder
from autotune.graph.types import TensorType
from autotune.training.forward import check_parameters
from autotune.training.optimisers import LEARNING_RATE, STEP, Optimiser
from targets.arrays import round_up

PARAMETERS = "parameters"
"""Input and state that holds all parameters."""
GRADIENTS = "gradients"
"""State that sums gradients over the batches of an update."""
LOSS = "loss"
"""Output of a training graph."""
NEW = "new_"
"""Beginning of the outputs that replace states: `new_parameters` replaces `parameters`."""
SPACING = 16
"""Multiple of elements at which each parameter begins: 64 bytes, so that kernels read it in slot."""
LARGE_SHARE = 256
"""Parameters that an update of their own pays for have at least one in so many of all elements."""


@dataclass(frozen=True)
class Slot:
    """The slot of a parameter in the array of all.

    Attributes:
        offset: its first element.
        shape: its shape.
        axes: axes of the parameter in the order of its elements in memory; (): its own order.
    """

    offset: int
    shape: tuple[int, ...]
    axes: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of its elements."""
        return math.prod(self.shape)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Extents in the order of its elements in memory."""
        return tuple(self.shape[axis] for axis in self.axes) or self.shape

    def of(self, array: Array) -> Array:
        """Returns the parameter as a view of the array."""
        stored: Array = array[self.offset : self.offset + self.size].reshape(self.stored_shape)
        return stored.transpose(np.argsort(self.axes)) if self.axes else stored


@dataclass(frozen=True)
class TrainingGraph:
    """A step as a graph.

    Attributes:
        graph: graph of the inputs of the forward graph, then `LEARNING_RATE` and the states; its outputs are the loss,
            then the new states, in the same order.
        slots: parameter → its slot in the state `PARAMETERS`.
        length: number of elements of that state.
        states: names of the states, with their types; the first is `STEP`.
    """

    graph: Graph
    slots: Mapping[str, Slot]
    length: int
    states: Mapping[str, TensorType]

    @property
    def updates(self) -> dict[str, str]:
        """Input → output of each state, which may share memory."""
        return dict(zip(self.states, self.graph.output_names[1:], strict=True))


def lay_out(
    parameters: Mapping[str, TensorType], orders: Mapping[str, tuple[int, ...]] = {}, fixed: Collection[str] = ()
) -> tuple[dict[str, Slot], list[list[str]]]:
    """Places parameters one after the other, small ones first.

    Args:
        parameters: types of the parameters.
        orders: orders of the axes of some in memory.
        fixed: parameters that no step changes.

    Returns:
        The slots, and the parameters of each part that is updated by kernels of its own, in the order of the slots.
        Either all or none of a part are fixed.

    Raises:
        GraphError: a parameter is not float32.
    """
    check_parameters(parameters)
    total = sum(kind.size for kind in parameters.values())
    small = [name for name, kind in parameters.items() if kind.size * LARGE_SHARE < total]
    trained, rest = ([name for name in small if (name in fixed) == is_fixed] for is_fixed in (False, True))
    large = [name for name in parameters if name not in set(small)]
    slots, length = {}, 0
    for name in (*trained, *rest, *large):
        slots[name] = Slot(length, parameters[name].shape, orders.get(name, ()))
        length += round_up(parameters[name].size, SPACING)
    return slots, [part for part in (trained, rest, *([name] for name in large)) if part]


def _read_orders(graph: Graph, parameters: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Lists the axes in which parameters are read, if all readers transpose a parameter alike.

    Kernels then read it as it is stored, and its gradient has the same layout: neither is transposed in a step.
    """
    orders: dict[str, tuple[int, ...]] = {}
    for name in parameters:
        readers = graph.consumers()[name]
        axes = {tuple(node.attrs["axes"]) if node.op == "transpose" else () for node in readers}
        if len(axes) == 1 and not any(node.name in graph.outputs for node in readers):
            orders |= {name: axes.pop()}
    return orders


def make_training_graph(
    forward: Graph,
    parameters: Sequence[str],
    loss: str,
    optimiser: Optimiser,
    buffers: Mapping[str, str] = {},
    masks: Mapping[str, float] = {},
    seed: int = 0,
    batches: int = 1,
) -> TrainingGraph:
    """Makes the graph of a step.

    Args:
        forward: graph with parameters and buffers as inputs; its nodes compute the loss and new buffers.
        parameters: names of the inputs to train.
        loss: name of the value to minimise, of one element.
        optimiser: optimiser.
        buffers: inputs that a step replaces, such as running means → their new values.
        masks: inputs of random truth values → probability that they hold.
        seed: seed of the masks; with the number of the step it decides them.
        batches: number of batches whose mean gradient an update takes.

    Raises:
        GraphError: a node has no gradient, a parameter is not float32, or an input or buffer has the name of a state.
    """
    types = {name: forward.type(name) for name in parameters}
    fixed = set(parameters) - find_dependencies(forward, loss)  # no weight decay either, as in PyTorch
    slots, parts = lay_out(types, _read_orders(forward, parameters), fixed)
    length = sum(round_up(slot.size, SPACING) for slot in slots.values())
    flat = TensorType((length,))
    states = {STEP: TensorType((1,), "int64"), PARAMETERS: flat, **dict.fromkeys(optimiser.moments, flat)}
    if batches > 1:
        states[GRADIENTS] = flat
    reserved = (LEARNING_RATE, *states)
    if clashes := [name for name in (*buffers, *forward.inputs) if name in reserved]:
        raise GraphError(f"inputs and buffers must have other names than {', '.join(reserved)}, but got {clashes[0]}")
    states |= {name: forward.type(name) for name in buffers}
    inputs = {name: kind for name, kind in forward.inputs.items() if name not in slots and name not in buffers}
    inputs = {name: kind for name, kind in inputs.items() if name not in masks}
    inputs |= {LEARNING_RATE: TensorType((1,)), **states}
    builder = GraphBuilder(forward.name, inputs)
    values = {name: name for name in inputs}
    new = {STEP: builder.add("add", [STEP, builder.constant(np.ones(1, np.int64), "one")], "number")}
    number = builder.add("cast", [new[STEP]], dtype="float32")
    for name, slot in slots.items():
        part = builder.add("slice", [PARAMETERS], begin=(slot.offset,), size=(slot.size,))
        values[name] = builder.add("reshape", [part], name, shape=slot.stored_shape)
    for place, (name, share) in enumerate(masks.items()):
        key = zlib.crc32(f"{seed} {place}".encode())
        values[name] = builder.add("bernoulli", [new[STEP]], name, shape=forward.type(name).shape, share=share, key=key)
    for name, array in forward.constants.items():
        values[name] = builder.constant(array, name)
    for node in forward.nodes:
        if node.inputs and node.inputs[0] in slots and slots[node.inputs[0]].axes:
            values[node.name] = values[node.inputs[0]]
            continue
        values[node.name] = builder.keep(node, forward, [values[name] for name in node.inputs])
    computed = builder.finish([values[loss]])
    gradients = add_gradients(builder, computed, values[loss], [values[name] for name in slots])
    pieces: dict[str, list[str]] = {}
    for part_names in parts:
        gradient = None
        if part_names[0] not in fixed:
            gradient = _join_gradients(builder, {name: gradients.get(values[name]) for name in part_names}, slots)
        begin, size = (slots[part_names[0]].offset,), (sum(round_up(slots[name].size, SPACING) for name in part_names),)
        old = {
            name: builder.add("slice", [name], begin=begin, size=size)
            for name in states
            if name in (PARAMETERS, GRADIENTS, *optimiser.moments)
        }
        if gradient is None:
            updated = old
        elif batches == 1:
            updated = optimiser.update(builder, old[PARAMETERS], gradient, old, number)
        else:
            updated = _update_after_batches(builder, optimiser, gradient, old, batches, new[STEP])
        for name, value in updated.items():
            pieces.setdefault(name, []).append(value)
    for name, each in pieces.items():
        new[name] = each[0] if len(each) == 1 else builder.add("concat", each, f"joined_{name}", axis=0)
    new |= {name: values[value] for name, value in buffers.items()}
    flat_loss = builder.add("reshape", [values[loss]], shape=(1,))
    graph = remove_stops(builder.finish([flat_loss, *(new[name] for name in states)]))
    names = (LOSS, *(NEW + name for name in states))
    return TrainingGraph(replace(graph, output_names=names), slots, length, states)


def _join_gradients(builder: GraphBuilder, gradients: Mapping[str, str | None], slots: Mapping[str, Slot]) -> str:
    """Adds the gradient of a part: those of its parameters one after the other, 0 between them."""
    pieces = []
    for name, slope in gradients.items():
        rest = round_up(slots[name].size, SPACING) - slots[name].size
        if slope is None:
            pieces.append(builder.constant(np.zeros(slots[name].size + rest, np.float32), "untouched"))
            continue
        pieces.append(builder.add("reshape", [slope], shape=(slots[name].size,)))
        if rest:
            pieces.append(builder.constant(np.zeros(rest, np.float32), "spacing"))
    return pieces[0] if len(pieces) == 1 else builder.add("concat", pieces, "gradient", axis=0)


def _update_after_batches(
    builder: GraphBuilder,
    optimiser: Optimiser,
    gradient: str,
    old: Mapping[str, str],
    batches: int,
    step: str,
) -> dict[str, str]:
    """Adds an update by the mean gradient of some batches, which the last of them makes.

    Args:
        builder, optimiser: arguments of `make_training_graph`.
        gradient: gradient of this batch (n,).
        old: parameters, states of the optimiser and sum of gradients, by the names of the states.
        batches: number of batches.
        step: number of this batch (1,) in int64, from 1.
    """

    def number(value: float) -> str:
        return builder.constant(np.asarray([value], np.float32), "number")

    total = builder.add("add", [old[GRADIENTS], gradient])
    divisor = builder.constant(np.asarray([batches], np.int64), "batches")
    quotient = builder.add("floor_divide", [step, divisor])  # 1 for the last of steps 1 to `batches`
    is_last = builder.add("equal", [builder.add("multiply", [quotient, divisor]), step])
    updates = builder.add("cast", [quotient], dtype="float32")
    mean = builder.add("multiply", [total, number(1 / batches)])
    updated = optimiser.update(builder, old[PARAMETERS], mean, old, updates)
    new = {name: builder.add("where", [is_last, value, old[name]]) for name, value in updated.items()}
    return {**new, GRADIENTS: builder.add("where", [is_last, number(0), total])}
