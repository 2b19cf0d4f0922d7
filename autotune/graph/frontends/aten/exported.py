"""Programs that `torch.export` makes, as graphs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.fx import Node
from torch.utils._pytree import tree_flatten_with_path, tree_unflatten

from autotune.graph.errors import ModelError
from autotune.graph.frontends.aten.decompositions import Table, decompositions
from autotune.graph.frontends.aten.graph import import_fx, known_of, refusals
from autotune.graph.frontends.aten.sizes import UnknownShape, specialised
from autotune.graph.frontends.aten.tensors import dtype_name
from autotune.graph.ir import Graph

_CONSTANT = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def import_exported(program: ExportedProgram, name: str = "network") -> Graph:
    """Makes a graph of a program of `torch.export`, of the same inputs and outputs.

    Args:
        program: of static shapes, exported in evaluation mode. Parameters stay on its memory where the graph has their
            elements in the same order.
        name: of the network.

    Raises:
        ModelError: operators that are not supported, all of which are named, or a program that changes its own state.
    """
    return import_lowered(lower(program), name)


def lower(program: ExportedProgram) -> ExportedProgram:
    """Takes apart the operators of a program that graphs have no converter for.

    Raises:
        ModelError: the program changes its own state.
    """
    program = decompose(program, decompositions())
    for spec in program.graph_signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            raise ModelError(f"a program must not change its state, but it gives {spec.kind} {spec.target!r}")
    return program


def decompose(program: ExportedProgram, table: Table) -> ExportedProgram:
    """Takes apart those of a program's operators that a table has, and graphs within nodes.

    PyTorch warns of what it does itself meanwhile, which no caller can mend.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result: ExportedProgram = program.run_decompositions(table)
    return result


def import_lowered(
    program: ExportedProgram,
    name: str = "network",
    shapes: Mapping[str, Sequence[int]] | None = None,
    watched: Sequence[str] = (),
) -> Graph:
    """Makes a graph of a program that `lower` gave.

    Args:
        program: lowered.
        name: of the network.
        shapes: of inputs by name, where the program leaves sizes open.
        watched: names of nodes whose values are further outputs.

    Raises:
        ModelError: operators that are not supported, all of which are named, or shapes that depend on data.
    """
    constants = constants_of(program)
    graph = program.graph if shapes is None else _specialised(program, constants, shapes)
    nodes = {node.name: node for node in graph.nodes}
    known = known_of(constants)
    if refused := refusals(graph, known):
        names = ", ".join(dict.fromkeys(str(node.target) for node in refused))
        raise ModelError(f"{next(iter(refused.values()))} (not supported here: {names})")
    outputs = dict(outputs_of(program))
    ends = [*(nodes[node] for node in outputs.values()), *(nodes[node] for node in watched)]
    inputs = [nodes[each] for each in inputs_of(program)]
    return import_fx(graph, inputs, ends, known, name, output_names=[*outputs, *watched])


def inputs_of(program: ExportedProgram) -> list[str]:
    """Lists the placeholders that a caller gives tensors for; numbers are part of the program.

    Raises:
        ModelError: an input that is no tensor, parameter or number.
    """
    names = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            if not isinstance(spec.arg, ConstantArgument):
                names.append(_name(spec.arg))
        elif spec.kind not in _CONSTANT:
            raise ModelError(f"inputs of a program must be tensors, but got {spec.kind} {_name(spec.arg)!r}")
    return names


def constants_of(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """Finds the parameters, buffers and constants of a program, by their placeholders."""
    found = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind in _CONSTANT:
            tensor = program.state_dict.get(spec.target)
            found[_name(spec.arg)] = program.constants[spec.target] if tensor is None else tensor
    return found


def outputs_of(program: ExportedProgram) -> Iterator[tuple[str, str]]:
    """Gives what a caller knows each output by, and its node: `output`, `output_1` of a tuple, or keys of a mapping.

    Raises:
        ModelError: an output that is a number.
    """
    args = [spec.arg for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    spec: Any = program.call_spec.out_spec
    leaves, _ = tree_flatten_with_path(tree_unflatten(args, spec))
    for path, argument in leaves:
        if isinstance(argument, ConstantArgument) and argument.value is None:
            continue
        if not _name(argument) or isinstance(argument, ConstantArgument):
            raise ModelError(f"outputs of a program must be tensors, but got {argument}")
        keys = [str(getattr(each, field)) for each in path for field in ("key", "idx", "name") if hasattr(each, field)]
        yield "_".join(keys if keys and not keys[0].isdigit() else ["output", *keys]), _name(argument)


def checkpoints(program: ExportedProgram, count: int) -> list[str]:
    """Names nodes that a check looks at besides the outputs: data of a last softmax, and `count` spread over the rest.

    Args:
        program: lowered.
        count: of values in between.
    """
    ends = {node for _, node in outputs_of(program)}
    nodes = [node for node in program.graph.nodes if node.op == "call_function" and node.name not in ends]
    last = [node.args[0] for node in program.graph.nodes if node.name in ends and "softmax" in str(node.target)]
    steps = [node for node in nodes if str(node.target).removeprefix("aten.").partition(".")[0] in _STEPS]
    steps = [node for node in steps if dtype_name(node.meta["val"].dtype) == "float32"]
    chosen = [steps[len(steps) * (i + 1) // (count + 1)] for i in range(count) if steps]
    return list(dict.fromkeys(node.name for node in (*last, *chosen) if isinstance(node, Node) and node in nodes))


_STEPS = ("relu", "add", "convolution", "linear", "addmm", "mm", "bmm", "hardtanh", "gelu", "silu")
"""Operators whose results are checked."""


def _specialised(
    program: ExportedProgram, constants: Mapping[str, torch.Tensor], shapes: Mapping[str, Sequence[int]]
) -> Any:
    """The program's graph at known shapes.

    Raises:
        ModelError: an operator whose result has a shape that data say.
    """
    given: list[Any] = []
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta["val"]
        if node.name in constants:
            value = constants[node.name]
        elif isinstance(value, torch.Tensor):
            value = torch.empty(tuple(shapes[node.name]), dtype=value.dtype)
        given.append(value)
    try:
        return specialised(program.graph_module, given).graph
    except UnknownShape as error:
        raise ModelError(str(error)) from error


def _name(argument: Any) -> str:
    return str(getattr(argument, "name", ""))
