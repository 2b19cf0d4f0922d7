"""Evaluation of exported programs by PyTorch's kernels, in the dtypes of the program or in wider ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node
from torch.utils._pytree import tree_map

from autotune.graph.frontends.aten.exported import find_constants, list_outputs
from autotune.graph.frontends.aten.tensors import array_from_tensor, tensor_from_array
from autotune.graph.types import Array

Types = Mapping[torch.dtype, torch.dtype]
FLOAT32: Types = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
FLOAT64: Types = {**dict.fromkeys(FLOAT32, torch.float64), torch.float32: torch.float64}


def evaluate_program(
    program: ExportedProgram, feeds: Mapping[str, Array], types: Types | None = None, extra_nodes: Collection[str] = ()
) -> dict[str, Array]:
    """Computes the outputs of a program by name, and the values of some nodes.

    Args:
        program: program without operators that hold graphs, as `run_decompositions` returns it.
        feeds: inputs by name.
        types: dtypes of the program → dtypes to compute in; None: those of the program.
        extra_nodes: names of nodes whose values are returned, too.

    Raises:
        RuntimeError: PyTorch lacks a kernel of an operator in another dtype.
    """
    types, constants = types or {}, find_constants(program)
    arguments: list[Any] = []
    for node in program.graph.find_nodes(op="placeholder"):
        if node.name in constants:
            arguments.append(constants[node.name].detach())
        elif node.name in feeds:
            arguments.append(tensor_from_array(feeds[node.name]))
        else:
            arguments.append(node.meta["val"])
    run = _Run(program, types, {*extra_nodes, *(node for _, node in list_outputs(program))})
    with torch.no_grad():
        run.run(*tree_map(run.convert_input, arguments))
    named = [*list_outputs(program), *((name, name) for name in extra_nodes)]
    return {name: array_from_tensor(run.values[node]).copy() for name, node in named}


class _Run(Interpreter):
    """An interpreter of a program, node by node.

    Args:
        program: program to run.
        types: dtypes of the program → dtypes to compute in.
        extra_nodes: names of nodes whose values are stored.
    """

    def __init__(self, program: ExportedProgram, types: Types, extra_nodes: Collection[str]) -> None:
        super().__init__(program.graph_module)
        self._types, self._extra_nodes = types, extra_nodes
        self.values: dict[str, torch.Tensor] = {}

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n.name in self._extra_nodes:
            self.values[n.name] = value
        return value

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(target, tree_map(self.replace_dtype, args), tree_map(self.replace_dtype, kwargs))

    def replace_dtype(self, argument: Any) -> Any:
        """Replaces an argument that is a dtype."""
        return self._types.get(argument, argument) if isinstance(argument, torch.dtype) else argument

    def convert_input(self, value: Any) -> Any:
        """Converts an input tensor to the dtype to compute in."""
        return value.to(self._types.get(value.dtype, value.dtype)) if isinstance(value, torch.Tensor) else value
