"""Exported programs computed by PyTorch's own kernels, in the types of the program or in wider ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node
from torch.utils._pytree import tree_map

from autotune.graph.frontends.aten.exported import constants_of, outputs_of
from autotune.graph.frontends.aten.tensors import array_of, tensor_of
from autotune.graph.types import Array

Types = Mapping[torch.dtype, torch.dtype]
FLOAT32: Types = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
FLOAT64: Types = {**dict.fromkeys(FLOAT32, torch.float64), torch.float32: torch.float64}


def evaluate_program(
    program: ExportedProgram, feeds: Mapping[str, Array], types: Types | None = None, watched: Collection[str] = ()
) -> dict[str, Array]:
    """Computes the outputs of a program by name, and the values of some nodes.

    Args:
        program: without operators that hold graphs, as `run_decompositions` leaves it.
        feeds: inputs by name.
        types: what to compute in, in place of which type; none: in the types of the program.
        watched: names of nodes.

    Raises:
        RuntimeError: PyTorch has no kernel of an operator in another type.
    """
    types, constants = types or {}, constants_of(program)
    given: list[Any] = []
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name in constants:
            given.append(constants[node.name].detach())
        elif node.name in feeds:
            given.append(tensor_of(feeds[node.name]))
        else:
            given.append(node.meta["val"])
    run = _Run(program, types, {*watched, *(node for _, node in outputs_of(program))})
    with torch.no_grad():
        run.run(*tree_map(run.widened, given))
    named = [*outputs_of(program), *((name, name) for name in watched)]
    return {name: array_of(run.values[node]).copy() for name, node in named}


class _Run(Interpreter):
    """Runs a program node by node.

    Args:
        program: to run.
        types: what to compute in, in place of which type.
        watched: names of nodes whose values are kept.
    """

    def __init__(self, program: ExportedProgram, types: Types, watched: Collection[str]) -> None:
        super().__init__(program.graph_module)
        self._types, self._watched = types, watched
        self.values: dict[str, torch.Tensor] = {}

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n.name in self._watched:
            self.values[n.name] = value
        return value

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(target, tree_map(self.retyped, args), tree_map(self.retyped, kwargs))

    def retyped(self, argument: Any) -> Any:
        """Replaces an argument that names a type."""
        return self._types.get(argument, argument) if isinstance(argument, torch.dtype) else argument

    def widened(self, value: Any) -> Any:
        """Converts an input."""
        return value.to(self._types.get(value.dtype, value.dtype)) if isinstance(value, torch.Tensor) else value
