"""Modules of PyTorch in training, read by `torch.export` with their loss."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch._decomp import get_decompositions
from torch._dynamo.exc import TorchDynamoException
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.module import register_module_buffer_registration_hook

from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.aten.decompositions import training_decompositions
from autotune.graph.frontends.aten.exported import decompose
from autotune.graph.frontends.aten.graph import import_fx, make_constant_values, refusals
from autotune.graph.frontends.aten.sizes import DEPENDS
from autotune.graph.frontends.aten.tensors import array_from_tensor
from autotune.graph.ir import Graph
from autotune.training.forward import ForwardGraph
from autotune.training.losses import NO_CLASS
from autotune.training.stops import GradientModes, check_mutations, detach_regions

Loss = Callable[[Any, Any], torch.Tensor]
"""Function of the module's output and the targets → a tensor of one element."""


def _cross_entropy(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Computes `torch.nn.functional.cross_entropy` of classes in the second axis.

    Classes are compared, not gathered: the gradient of a gather compares each index with each row of the table.
    """
    logarithms = torch.nn.functional.log_softmax(output, 1)
    classes = torch.arange(output.shape[1]).reshape(1, -1, *(1,) * (output.dim() - 2))
    chosen = torch.where(targets.unsqueeze(1) == classes, logarithms, torch.zeros(()))
    return -chosen.sum() / (targets != NO_CLASS).sum()


LOSSES: dict[str, Loss] = {"cross_entropy": _cross_entropy, "mse": torch.nn.functional.mse_loss}
"""The losses of `losses.LOSSES` for modules."""
_RECURRENT = [torch.ops.aten.lstm.input, torch.ops.aten.gru.input]
"""Operators that PyTorch decomposes to a chain of steps."""


class _WithLoss(torch.nn.Module):
    def __init__(self, model: torch.nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, targets: torch.Tensor, *inputs: Any) -> torch.Tensor:
        return self.loss(self.model(*inputs), targets)


class _BufferAssignments:
    """A context that lists the buffers of a module that are assigned another tensor.

    Attributes:
        names: names of these buffers.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._modules = {module: name for name, module in model.named_modules()}
        self.names: list[str] = []

    def __enter__(self) -> None:
        self._handle = register_module_buffer_registration_hook(self._note)

    def __exit__(self, *error: object) -> None:
        self._handle.remove()

    def _note(self, module: torch.nn.Module, name: str, value: Any) -> None:
        if module in self._modules and module._buffers.get(name) is not value:
            self.names.append(f"{self._modules[module]}.{name}".lstrip("."))


def read_module(model: torch.nn.Module, inputs: tuple[Any, ...], targets: torch.Tensor, loss: Loss) -> ForwardGraph:
    """Exports a module in training mode, with its loss; its mode is restored.

    Raises:
        UnsupportedModelError: `torch.export` refuses the module, an operator is not supported, or a buffer is assigned.
    """
    shapes: list[tuple[int, ...]] = []

    def with_shape(output: Any, targets: torch.Tensor) -> torch.Tensor:
        if isinstance(output, torch.Tensor):
            shapes.append(tuple(output.shape))
        return loss(output, targets)

    before, assigned, modes = model.training, _BufferAssignments(model), GradientModes()
    try:
        # Attention as products and a softmax, which have gradients of their own.
        with sdpa_kernel(SDPBackend.MATH), torch.enable_grad(), assigned, modes:
            program = torch.export.export(_WithLoss(model.train(), with_shape), (targets, *inputs), strict=False)
        detach_regions(program)
        with sdpa_kernel(SDPBackend.MATH):
            recurrent: Any = get_decompositions(_RECURRENT)
            program = decompose(program, {**training_decompositions(), **recurrent})
    except UnsupportedModelError:
        raise
    except (TorchDynamoException, RuntimeError, ValueError, *DEPENDS) as error:
        raise UnsupportedModelError(f"`model` must be a module that torch.export reads, but: {error!s:.300}") from error
    finally:
        model.train(before)
    if assigned.names:  # `torch.export` drops these, and each step would begin with the first values
        raise UnsupportedModelError(f"buffers must be changed in place, but the module assigns {assigned.names[0]}")
    if modes.off_in_autocast:
        raise UnsupportedModelError("gradients must not be turned off within autocast: turn them off around it")
    check_mutations(program)
    classes = shapes[0][1] if loss is _cross_entropy else None
    return replace(_import(program, type(model).__name__), classes=classes)


def _import(program: ExportedProgram, name: str) -> ForwardGraph:
    nodes = {node.name: node for node in program.graph.nodes}
    batch, parameters, buffers, constants = [], {}, {}, {}
    changed = {s.target for s in program.graph_signature.output_specs if s.kind is OutputKind.BUFFER_MUTATION}
    for spec in program.graph_signature.input_specs:
        node = str(getattr(spec.arg, "name", ""))
        if spec.kind is InputKind.USER_INPUT:
            batch.append(nodes[node])
            continue
        tensor = program.state_dict.get(spec.target)
        tensor = program.constants[spec.target] if tensor is None else tensor
        if spec.kind is InputKind.PARAMETER and tensor.requires_grad:
            parameters[node] = spec.target, tensor
        elif spec.target in changed and tensor.is_floating_point():
            buffers[node] = spec.target, tensor
        else:
            constants[node] = tensor
    loss, new = "", {}
    for spec in program.graph_signature.output_specs:
        if spec.kind is OutputKind.USER_OUTPUT:
            loss = spec.arg.name
        elif spec.kind is OutputKind.BUFFER_MUTATION:
            new[spec.target] = spec.arg.name
    arrays = make_constant_values(constants)
    graph = program.graph
    # Counters of batches are not part of a step.
    ends = {target: nodes[value] for target, value in new.items() if target in {t for t, _ in buffers.values()}}
    for node in list(graph.nodes):
        if node.op == "output":
            node.args = ((nodes[loss], *ends.values()),)
    masks = _take_out_masks(graph)
    graph.eliminate_dead_code()
    if refused := refusals(graph, arrays):
        names = ", ".join(dict.fromkeys(str(node.target) for node in refused))
        raise UnsupportedModelError(f"{next(iter(refused.values()))} (not supported in training: {names})")
    inputs = [*batch, *(nodes[node] for node in (*parameters, *buffers)), *masks]
    imported = import_fx(graph, inputs, [nodes[loss], *ends.values()], arrays, name, stops_gradients=True)
    first = "model."
    named = {node: target.removeprefix(first) for node, (target, _) in {**parameters, **buffers}.items()}
    renamed = _rename(imported, named)
    values = dict(zip(["", *ends], renamed.outputs, strict=True))
    return ForwardGraph(
        renamed,
        values[""],
        {named[node]: array_from_tensor(tensor.detach()) for node, (_, tensor) in parameters.items()},
        {named[node]: np.array(array_from_tensor(tensor)) for node, (_, tensor) in buffers.items()},
        {target.removeprefix(first): value for target, value in values.items() if target},
        masks={node.name: share for node, share in masks.items()},
    )


def _take_out_masks(graph: torch.fx.Graph) -> dict[torch.fx.Node, float]:
    """Replaces random truth values by inputs; returns these with the probability of each."""
    masks = {}
    first = next(iter(graph.nodes))
    for node in list(graph.nodes):
        if node.target is not torch.ops.aten.bernoulli.p:
            continue
        with graph.inserting_before(first):
            mask = graph.placeholder(f"{node.name}_mask")
        mask.meta = dict(node.meta)
        node.replace_all_uses_with(mask)
        graph.erase_node(node)
        masks[mask] = float(node.args[1])
    return masks


def _rename(graph: Graph, names: dict[str, str]) -> Graph:
    """Renames inputs of a graph; other values that have one of the new names get a suffix."""
    names = dict(names)
    in_use = {*graph.inputs, *graph.constants, *(node.name for node in graph.nodes), *names.values()}
    for name in (*graph.inputs, *graph.constants, *(node.name for node in graph.nodes)):
        if name not in names and name in names.values():
            names[name] = next(fresh for n in itertools.count(2) if (fresh := f"{name}_{n}") not in in_use)
            in_use.add(names[name])
    inputs = {names.get(name, name): kind for name, kind in graph.inputs.items()}
    constants = {names.get(name, name): array for name, array in graph.constants.items()}
    nodes = tuple(
        replace(node, name=names.get(node.name, node.name), inputs=tuple(names.get(name, name) for name in node.inputs))
        for node in graph.nodes
    )
    return Graph(graph.name, inputs, constants, nodes, tuple(names.get(name, name) for name in graph.outputs))
