"""The graph of a training step: a forward graph, its gradients, and an optimiser.

All parameters lie in one array, and so do the states of the optimiser: a step is three kernels for Adam, however many
parameters there are. Kernels read a parameter where it lies. New values go to arrays of their own.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.graph.errors import GraphError
from autotune.graph.gradient.reverse import add_gradients
from autotune.graph.ir import Array, Graph, GraphBuilder
from autotune.graph.types import TensorType
from autotune.training.forward import check_parameters
from autotune.training.optimisers import LEARNING_RATE, STEP, Optimiser

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


@dataclass(frozen=True)
class Slot:
    """The slot of a parameter in the array of all.

    Attributes:
        offset: its first element.
        shape: its shape.
    """

    offset: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of its elements."""
        return math.prod(self.shape)

    def of(self, array: Array) -> Array:
        """Returns the parameter as a view of the array."""
        view: Array = array[self.offset : self.offset + self.size].reshape(self.shape)
        return view


@dataclass(frozen=True)
class TrainingGraph:
    """A step as a graph.

    Attributes:
        graph: graph of the inputs of the forward graph, then `LEARNING_RATE`, `STEP` and the states; its outputs are
            the loss, then the new states, in the same order.
        slots: parameter → its slot in the state `PARAMETERS`.
        length: number of elements of that state.
        states: names of the states, with their types.
    """

    graph: Graph
    slots: Mapping[str, Slot]
    length: int
    states: Mapping[str, TensorType]


def lay_out(parameters: Mapping[str, TensorType]) -> tuple[dict[str, Slot], int]:
    """Places parameters one after the other; returns the slots and the number of elements.

    Raises:
        GraphError: a parameter is not float32.
    """
    check_parameters(parameters)
    slots, length = {}, 0
    for name, kind in parameters.items():
        slots[name] = Slot(length, kind.shape)
        length += -(-kind.size // SPACING) * SPACING
    return slots, length


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
        GraphError: a node has no gradient, a parameter is not float32, or an input or buffer has a name of the step.
    """
    slots, length = lay_out({name: forward.type(name) for name in parameters})
    flat = TensorType((length,))
    states = {PARAMETERS: flat, **dict.fromkeys(optimiser.moments, flat)}
    states |= {name: forward.type(name) for name in buffers}
    inputs = {name: kind for name, kind in forward.inputs.items() if name not in slots and name not in buffers}
    inputs = {name: kind for name, kind in inputs.items() if name not in masks}
    if batches > 1:
        states[GRADIENTS] = flat
    own = (LEARNING_RATE, STEP, PARAMETERS, GRADIENTS, *optimiser.moments)
    if clashes := [name for name in (*inputs, *buffers) if name in own]:
        raise GraphError(f"inputs and buffers must have other names than {', '.join(own)}, but got {clashes[0]}")
    inputs |= {LEARNING_RATE: TensorType((1,)), STEP: TensorType((1,)), **states}
    builder = GraphBuilder(forward.name, inputs)
    values = {name: name for name in inputs}
    for name, slot in slots.items():
        part = builder.add("slice", [PARAMETERS], begin=(slot.offset,), size=(slot.size,))
        values[name] = builder.add("reshape", [part], name, shape=slot.shape)
    for number, (name, share) in enumerate(masks.items()):
        key = zlib.crc32(f"{seed} {number}".encode())
        values[name] = builder.add("bernoulli", [STEP], name, shape=forward.type(name).shape, share=share, key=key)
    for name, array in forward.constants.items():
        values[name] = builder.constant(array, name)
    for node in forward.nodes:
        values[node.name] = builder.keep(node, forward, [values[name] for name in node.inputs])
    computed = builder.finish([values[loss]])
    gradients = add_gradients(builder, computed, values[loss], [values[name] for name in slots])
    pieces = []
    for name, slot in slots.items():
        rest = -(-slot.size // SPACING) * SPACING - slot.size
        slope = gradients.get(values[name])
        if slope is None:
            pieces.append(builder.constant(np.zeros(slot.size + rest, np.float32), "untouched"))
            continue
        pieces.append(builder.add("reshape", [slope], shape=(slot.size,)))
        if rest:
            pieces.append(builder.constant(np.zeros(rest, np.float32), "spacing"))
    gradient = pieces[0] if len(pieces) == 1 else builder.add("concat", pieces, "gradient", axis=0)
    moments = {name: name for name in optimiser.moments}
    if batches == 1:
        new = optimiser.update(builder, PARAMETERS, gradient, moments, STEP)
    else:
        new = _update_after_batches(builder, optimiser, gradient, moments, batches)
    new |= {name: values[value] for name, value in buffers.items()}
    flat_loss = builder.add("reshape", [values[loss]], shape=(1,))
    graph = builder.finish([flat_loss, *(new[name] for name in states)])
    names = (LOSS, *(NEW + name for name in states))
    return TrainingGraph(replace(graph, output_names=names), slots, length, states)


def _update_after_batches(
    builder: GraphBuilder, optimiser: Optimiser, gradient: str, moments: Mapping[str, str], batches: int
) -> dict[str, str]:
    """Adds an update by the mean gradient of some batches, which the last of them makes."""

    def number(value: float) -> str:
        return builder.constant(np.asarray([value], np.float32), "number")

    total = builder.add("add", [GRADIENTS, gradient])
    # Of steps 1 to `batches`, the last has the quotient 1.
    quotient = builder.add(
        "floor", [builder.add("multiply", [builder.add("add", [STEP, number(0.5)]), number(1 / batches)])]
    )
    is_last = builder.add("equal", [builder.add("multiply", [quotient, number(batches)]), STEP])
    mean = builder.add("multiply", [total, number(1 / batches)])
    updated = optimiser.update(builder, PARAMETERS, mean, moments, quotient)
    new = {name: builder.add("where", [is_last, value, name]) for name, value in updated.items()}
    return {**new, GRADIENTS: builder.add("where", [is_last, number(0), total])}
