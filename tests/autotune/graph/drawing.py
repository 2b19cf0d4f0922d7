"""Drawing of a node with random legal attributes: the draw, and the table of generators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Shape = Sequence[int]


class Draw:
    """A node on its way to a model.

    Attributes:
        rng: generator of all that is drawn.
        opset: operator set of the model.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.opset = rng, 17
        self._inputs: list[onnx.ValueInfoProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._node = onnx.NodeProto()

    def pick(self, *choices: Any) -> Any:
        """One of them."""
        return choices[int(self.rng.integers(len(choices)))]

    def number(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float = 0.5) -> bool:
        return bool(self.rng.random() < share)

    def at(self, *opsets: int) -> int:
        """The operator set is one of these."""
        self.opset = int(self.pick(*opsets))
        return self.opset

    def shape(self, low: int = 1, high: int = 4, largest: int = 5) -> tuple[int, ...]:
        """Draws a shape of `low` to `high` dimensions."""
        return tuple(self.number(1, largest) for _ in range(self.number(low, high)))

    def add_input(self, shape: Shape, low: float = -2.0, high: float = 2.0, dtype: str = "float32") -> str:
        """An input; its name."""
        name = f"x{len(self._inputs)}"
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        value = helper.make_tensor_value_info(name, kind, list(shape), doc_string=f"{low} {high}")
        self._inputs.append(value)
        return name

    def add_constant(self, array: Any, dtype: Any = None) -> str:
        """A constant; its name."""
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def floats(self, shape: Shape, low: float = -2.0, high: float = 2.0) -> str:
        """A constant of random numbers; its name."""
        return self.add_constant(self.rng.uniform(low, high, tuple(shape)), np.float32)

    def either(self, shape: Shape, low: float = -2.0, high: float = 2.0) -> str:
        """An input or a constant; its name."""
        return self.add_input(shape, low, high) if self.chance() else self.floats(shape, low, high)

    def some(self, **attributes: Any) -> dict[str, Any]:
        """Each of these attributes, or not: then its default holds."""
        return {name: value for name, value in attributes.items() if self.chance(0.7)}

    def broadcast(self, shape: Shape, within: bool = False) -> tuple[int, ...]:
        """A shape that goes with `shape`; `within`: it is brought to `shape`."""
        ones = tuple(1 if self.chance(0.3) else n for n in shape)
        kept = ones[self.number(0, len(ones) - 1) :]
        return kept if within or self.chance() else (self.number(1, 3), *ones)[-4:]

    def node(self, op: str, names: Sequence[str], outputs: int = 1, **attributes: Any) -> None:
        """Sets the node that the model computes."""
        self._node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], name="only", **attributes)

    def model(self) -> onnx.ModelProto:
        outputs = [helper.make_empty_tensor_value_info(name) for name in self._node.output]
        graph = helper.make_graph([self._node], "random", self._inputs, outputs, self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


Generator = Callable[[Draw], None]
GENERATORS: dict[str, Generator] = {}
"""Operator → what draws a node of it."""


def draws(*ops: str) -> Callable[[Callable[[Draw, str], None]], Callable[[Draw, str], None]]:
    """Registers a function of the draw and the operator."""

    def register(function: Callable[[Draw, str], None]) -> Callable[[Draw, str], None]:
        for op in ops:
            assert op not in GENERATORS, op
            GENERATORS[op] = lambda draw, op=op: function(draw, op)  # type: ignore[misc]
        return function

    return register
