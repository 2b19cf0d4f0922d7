"""Import of programs of `torch.export` as graphs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import Node
from torch.utils._pytree import tree_flatten_with_path, tree_unflatten

from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.aten.decompositions import Table, decompositions
from autotune.graph.frontends.aten.graph import import_fx, make_constant_values, refusals
from autotune.graph.frontends.aten.sizes import UnknownShape, specialise
from autotune.graph.frontends.aten.tensors import dtype_name
from autotune.graph.ir import Graph

_CONSTANT = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def import_exported(program: ExportedProgram, name: str = "network") -> Graph:
    """Converts a program of `torch.export` to a graph with the same inputs and outputs.

    Args:
        program: program with static shapes, exported in evaluation mode. The graph shares the memory of parameters if
            it has their elements in the same order.
        name: name of the network.

    Raises:
        UnsupportedModelError: the program has unsupported operators, all of which are named, or changes its own state.
    """
    return import_lowered(lower(program), name)


def lower(program: ExportedProgram) -> ExportedProgram:
    """Decomposes the operators of a program that have no converter.

    Raises:
        UnsupportedModelError: the program changes its own state.
    """
    program = decompose(program, decompositions())
    for spec in program.graph_signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            raise UnsupportedModelError(
                f"a program must not change its state, but it gives {spec.kind} {spec.target!r}"
            )
    return program


def decompose(program: ExportedProgram, table: Table) -> ExportedProgram:
    """Decomposes the operators of a program that a table has, and graphs within nodes.

    Checks of dtypes and devices are removed, which `torch.export` adds to conversions: both are those of the trace.
    PyTorch's warnings about its own steps are suppressed, as no caller can act on them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result: ExportedProgram = program.run_decompositions(table)
    for node in result.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_tensor_metadata.default):
        result.graph.erase_node(node)
    return result


def import_lowered(
    program: ExportedProgram,
    name: str = "network",
    shapes: Mapping[str, Sequence[int]] | None = None,
    extra_nodes: Sequence[str] = (),
) -> Graph:
    """Converts a program that `lower` returned to a graph.

    Args:
        program: program that `lower` returned.
        name: name of the network.
        shapes: shapes of inputs by name, if the program has open sizes.
        extra_nodes: names of nodes whose values become further outputs.

    Raises:
        UnsupportedModelError: unsupported operators, all of which are named, or shapes that depend on data.
    """
    constants = find_constants(program)
    graph = program.graph if shapes is None else _specialise(program, constants, shapes)
    nodes = {node.name: node for node in graph.nodes}
    arrays = make_constant_values(constants)
    if refused := refusals(graph, arrays):
        names = ", ".join(dict.fromkeys(str(node.target) for node in refused))
        raise UnsupportedModelError(f"{next(iter(refused.values()))} (not supported here: {names})")
    outputs = dict(list_outputs(program))
    ends = [*(nodes[node] for node in outputs.values()), *(nodes[node] for node in extra_nodes)]
    inputs = [nodes[each] for each in list_inputs(program)]
    return import_fx(graph, inputs, ends, arrays, name, output_names=[*outputs, *extra_nodes])


def list_inputs(program: ExportedProgram) -> list[str]:
    """Lists the placeholders for which a caller passes tensors; numbers are part of the program.

    Raises:
        UnsupportedModelError: an input is not a tensor, parameter or number.
    """
    names = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            if not isinstance(spec.arg, ConstantArgument):
                names.append(_name(spec.arg))
        elif spec.kind not in _CONSTANT:
            raise UnsupportedModelError(f"inputs of a program must be tensors, but got {spec.kind} {_name(spec.arg)!r}")
    return names


def find_constants(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """Collects the parameters, buffers and constants of a program by their placeholders."""
    constants = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind in _CONSTANT:
            tensor = program.state_dict.get(spec.target)
            constants[_name(spec.arg)] = program.constants[spec.target] if tensor is None else tensor
    return constants


def list_outputs(program: ExportedProgram) -> Iterator[tuple[str, str]]:
    """Yields the public name of each output and its node: `output`, `output_1` of a tuple, or keys of a mapping.

    Raises:
        UnsupportedModelError: an output is a number.
    """
    args = [spec.arg for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    spec: Any = program.call_spec.out_spec
    leaves, _ = tree_flatten_with_path(tree_unflatten(args, spec))
    for path, argument in leaves:
        if isinstance(argument, ConstantArgument) and argument.value is None:
            continue
        if not _name(argument) or isinstance(argument, ConstantArgument):
            raise UnsupportedModelError(f"outputs of a program must be tensors, but got {argument}")
        keys = [str(getattr(each, field)) for each in path for field in ("key", "idx", "name") if hasattr(each, field)]
        yield "_".join(keys if keys and not keys[0].isdigit() else ["output", *keys]), _name(argument)


def checkpoints(program: ExportedProgram, count: int) -> list[str]:
    """Lists nodes that a check compares besides the outputs: the input of a last softmax, and `count` spread evenly.

    Args:
        program: program that `lower` returned.
        count: number of nodes spread evenly.
    """
    ends = {node for _, node in list_outputs(program)}
    nodes = [node for node in program.graph.nodes if node.op == "call_function" and node.name not in ends]
    last = [node.args[0] for node in program.graph.nodes if node.name in ends and "softmax" in str(node.target)]
    steps = [node for node in nodes if str(node.target).removeprefix("aten.").partition(".")[0] in _STEPS]
    steps = [node for node in steps if dtype_name(node.meta["val"].dtype) == "float32"]
    chosen = [steps[len(steps) * (i + 1) // (count + 1)] for i in range(count) if steps]
    return list(dict.fromkeys(node.name for node in (*last, *chosen) if isinstance(node, Node) and node in nodes))


_STEPS = ("relu", "add", "convolution", "linear", "addmm", "mm", "bmm", "hardtanh", "gelu", "silu")
"""Operators whose results are compared."""


def _specialise(
    program: ExportedProgram, constants: Mapping[str, torch.Tensor], shapes: Mapping[str, Sequence[int]]
) -> Any:
    """Specialises the program's graph to static shapes.

    Raises:
        UnsupportedModelError: the shape of a result depends on data.
    """
    arguments: list[Any] = []
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta["val"]
        if node.name in constants:
            value = constants[node.name]
        elif isinstance(value, torch.Tensor):
            value = torch.empty(tuple(shapes[node.name]), dtype=value.dtype)
        arguments.append(value)
    try:
        return specialise(program.graph_module, arguments).graph
    except UnknownShape as error:
        raise UnsupportedModelError(str(error)) from error


def _name(argument: Any) -> str:
    return str(getattr(argument, "name", ""))
