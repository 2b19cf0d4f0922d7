"""Programs that `torch.export` makes."""

from __future__ import annotations

from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from autotune.graph.aten.decompositions import decompositions
from autotune.graph.aten.graph import import_fx, known_of, refusals
from autotune.graph.errors import ModelError
from autotune.graph.ir import Graph

_CONSTANT = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def import_exported(program: ExportedProgram, name: str = "network") -> Graph:
    """The graph of a program of `torch.export`, of the same inputs and outputs.

    Args:
        program: of static shapes, exported in evaluation mode. Parameters stay on its memory where the graph has their
            elements in the same order.
        name: of the network.

    Raises:
        ModelError: operators that are not supported, all of which are named, or a program that changes its own state.
    """
    program = program.run_decompositions(decompositions())
    nodes = {node.name: node for node in program.graph.nodes}
    constants, inputs = {}, []
    for given in program.graph_signature.input_specs:
        if given.kind is InputKind.USER_INPUT:
            inputs.append(nodes[_name(given.arg)])
        elif given.kind in _CONSTANT:
            found = program.state_dict.get(given.target)
            constants[_name(given.arg)] = program.constants[given.target] if found is None else found
        else:
            raise ModelError(f"inputs of a program must be tensors, but got {given.kind} {_name(given.arg)!r}")
    outputs = []
    for made in program.graph_signature.output_specs:
        if made.kind is not OutputKind.USER_OUTPUT:
            raise ModelError(f"a program must not change its state, but it gives {made.kind} {made.target!r}")
        if _name(made.arg) not in nodes:
            raise ModelError(f"outputs of a program must be tensors, but got {made.arg}")
        outputs.append(nodes[_name(made.arg)])
    known = known_of(constants)
    if refused := refusals(program.graph, known):
        names = ", ".join(dict.fromkeys(str(node.target) for node in refused))
        raise ModelError(f"{next(iter(refused.values()))} (not supported here: {names})")
    return import_fx(program.graph, inputs, outputs, known, name)


def _name(argument: Any) -> str:
    return str(getattr(argument, "name", ""))
