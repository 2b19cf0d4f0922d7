"""Element-wise parts of recurrent steps: gates, states and outputs. Rows are the samples of a batch.

The products of a step form a matrix of blocks side by side, one for each gate, each as wide as the state. A cell reads
all blocks that it needs, so that a step is the product and one kernel for each state that it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.graph.ops.base import GraphOp, Kind, Tensors, Types, freeze, register
from autotune.graph.types import Array, Attributes
from search_space import te
from search_space.ir.expr import FLOATS, Expr
from search_space.operators.functions import UNARY

FUNCTIONS = ("sigmoid", "tanh", "relu")
"""Names of the functions that gates and states may apply."""

GatePart = Callable[[int, int], Any]
"""Number of an input and of one of its blocks → the block: an element of it, or all of it."""


@dataclass(frozen=True)
class Cell:
    """An element-wise computation of a step on the blocks of its inputs.

    Attributes:
        inputs: name of each input → its number of blocks. The last input has the state's width.
        functions: number of functions that the node names.
        formula: functions, blocks, and whether the further input is present → the output.
        weights: number of blocks of an optional further input, one row for all samples.
    """

    inputs: Mapping[str, int]
    functions: int
    formula: Callable[[list[Any], GatePart, bool], Any]
    weights: int = 0

    def attributes(self, attributes: Attributes, types: Types) -> dict[str, Any]:
        names = freeze(attributes["functions"])
        if len(names) != self.functions or not set(names) <= set(FUNCTIONS):
            raise ValueError(
                f"`functions` must be {self.functions} of {', '.join(FUNCTIONS)}, but got functions={list(names)}"
            )
        count = len(self.inputs)
        if len(types) not in (count, count + bool(self.weights)):
            raise ValueError(f"inputs must be {', '.join(self.inputs)}, but got {len(types)}")
        state = types[count - 1]
        if len(state.shape) != 2 or state.dtype not in FLOATS:
            raise ValueError(f"a state must be a matrix of floating-point values, but got {state}")
        rows, width = state.shape
        wanted = [(rows, parts * width) for parts in self.inputs.values()] + [(self.weights * width,)]
        for kind, shape in zip(types, wanted, strict=False):
            if kind.shape != shape or kind.dtype not in FLOATS:
                raise ValueError(
                    f"inputs must be floating-point values of {list(shape)} beside {state}, but got {kind}"
                )
        return {"functions": names}

    def define(self, attrs: Attributes, tensors: Tensors) -> te.Tensor:
        rows, width = tensors[len(self.inputs) - 1].shape
        functions = [UNARY[name].expression for name in attrs["functions"]]

        def body(row: Any, column: Any) -> Expr:
            def part(index: int, number: int) -> Any:
                tensor, at = tensors[index], column + number * width
                return tensor[row, at] if len(tensor.shape) == 2 else tensor[at]

            out: Expr = self.formula(functions, part, len(tensors) > len(self.inputs))
            return out

        return te.compute((rows, width), body, name="cell")

    def compute(self, attrs: Attributes, *arrays: Array) -> Array:
        width = arrays[len(self.inputs) - 1].shape[1]
        functions = [UNARY[name].reference for name in attrs["functions"]]

        def part(index: int, number: int) -> Array:
            return arrays[index][..., number * width : (number + 1) * width]

        out: Array = self.formula(functions, part, len(arrays) > len(self.inputs))
        return out


def _lstm_state(functions: list[Any], part: GatePart, peepholes: bool) -> Any:
    """Computes forget * state + input * new; the gates are input, output, forget, new."""
    gate, new = functions
    enter, forget, state = part(0, 0), part(0, 2), part(1, 0)
    if peepholes:
        enter, forget = enter + part(2, 0) * state, forget + part(2, 2) * state
    return gate(forget) * state + gate(enter) * new(part(0, 3))


def _lstm_output(functions: list[Any], part: GatePart, peepholes: bool) -> Any:
    """Computes the output from the gates of `_lstm_state` and the new state."""
    gate, shown = functions
    leave, state = part(0, 1), part(1, 0)
    if peepholes:
        leave = leave + part(2, 1) * state
    return gate(leave) * shown(state)


def _mix(update: Any, new: Any, state: Any) -> Any:
    return new + update * (state - new)


def _gru_linear(functions: list[Any], part: GatePart, _: bool) -> Any:
    """Computes a state from products for the gates update, reset, new; the reset gate scales the state's product."""
    gate, new = functions
    update, reset = (gate(part(0, number) + part(1, number)) for number in (0, 1))
    return _mix(update, new(part(0, 2) + reset * part(1, 2)), part(2, 0))


def _gru_reset(functions: list[Any], part: GatePart, _: bool) -> Any:
    """Multiplies the state by the reset gate; the gates are update and reset."""
    (gate,) = functions
    return gate(part(0, 1)) * part(1, 0)


def _gru_mixed(functions: list[Any], part: GatePart, _: bool) -> Any:
    """Interpolates between new value and state by the update gate; the gates are update and reset."""
    gate, new = functions
    return _mix(gate(part(0, 0)), new(part(1, 0)), part(2, 0))


CELLS = {
    "lstm_state": Cell({"gates": 4, "state": 1}, 2, _lstm_state, weights=3),
    "lstm_output": Cell({"gates": 4, "state": 1}, 2, _lstm_output, weights=3),
    "gru_linear": Cell({"input": 3, "hidden": 3, "state": 1}, 2, _gru_linear),
    "gru_reset": Cell({"gates": 2, "state": 1}, 1, _gru_reset),
    "gru_mixed": Cell({"gates": 2, "new": 1, "state": 1}, 2, _gru_mixed),
}

register(
    *(GraphOp(name, Kind.compute, cell.attributes, cell.define, compute=cell.compute) for name, cell in CELLS.items())
)
