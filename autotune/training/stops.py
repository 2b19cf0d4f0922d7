"""Places in a module where gradients stop, in programs of `torch.export` before these are decomposed.

`detach` is an operator of programs, and stays one. Regions without gradients are graphs within nodes, and lose their
mark as they are decomposed. So their inputs are detached before: nothing that they compute depends on parameters then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import GraphModule, Node
from torch.overrides import TorchFunctionMode

from autotune.graph.errors import UnsupportedModelError

_REGION = torch.ops.higher_order.wrap_with_set_grad_enabled
_DETACH = torch.ops.aten.detach.default
_AUTOCAST_DEVICES = ("cpu", "cuda")


class GradientModes(TorchFunctionMode):
    """A context that notes where gradients are turned off within autocast: `torch.export` loses such a region.

    Attributes:
        off_in_autocast: whether it happened.
    """

    off_in_autocast = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch._C._set_grad_enabled and not args[0]:
            self.off_in_autocast |= any(torch.is_autocast_enabled(device) for device in _AUTOCAST_DEVICES)
        return func(*args, **(kwargs or {}))


def detach_regions(program: ExportedProgram) -> None:
    """Detaches the inputs of regions without gradients, in place; so is what `detach_` returns.

    Raises:
        UnsupportedModelError: a region turns gradients on, or a value with gradients is changed without them.
    """
    for module in program.graph_module.modules():
        if not isinstance(module, GraphModule):
            continue
        for node in list(module.graph.nodes):
            if node.target is torch.ops.aten.detach_.default:
                node.target = _DETACH
            elif node.target is torch._C._set_grad_enabled or (node.target is _REGION and node.args[0]):
                raise UnsupportedModelError(f"gradients must not be turned on in a region without them: {node.name}")
            elif node.target is _REGION:
                _detach_inputs(module, node)
        _check_changes(module)
        module.recompile()


def check_mutations(program: ExportedProgram) -> None:
    """Checks that a program changes no parameter.

    Raises:
        UnsupportedModelError: it changes one.
    """
    for spec in program.graph_signature.output_specs:
        if spec.kind is OutputKind.PARAMETER_MUTATION:
            raise UnsupportedModelError(f"parameters must be changed by the optimiser alone, but got {spec.target}")


def _detach_inputs(module: GraphModule, region: Node) -> None:
    """Detaches the tensors that a region reads; of these it may change buffers alone."""
    inner = region.args[1]
    assert isinstance(inner, Node)
    body = getattr(module, str(inner.target))
    places = [node for node in body.graph.nodes if node.op == "placeholder"]
    changed = {_base(node)[0] for node in body.graph.nodes if _changes(node)}
    for place, value in zip(places, region.args[2:], strict=True):
        if place in changed and isinstance(value, Node) and _base(value)[0].op != "placeholder":
            _refuse(value)
    with module.graph.inserting_before(region):
        for value in dict.fromkeys(value for value in region.args[2:] if isinstance(value, Node)):
            detached = module.graph.call_function(_DETACH, (value,))
            detached.meta = dict(value.meta)
            region.replace_input_with(value, detached)


def _check_changes(module: GraphModule) -> None:
    """Checks changes in place: a value that others read must not be changed through `detach`."""
    for node in module.graph.nodes:
        base, read = _base(node) if _changes(node) else (None, False)
        if base is not None and base.op != "placeholder" and read:
            _refuse(base)


def _refuse(value: Node) -> None:
    raise UnsupportedModelError(
        f"values with gradients must not be changed in place without them, but the module changes {value.name}"
    )


def _changes(node: Node) -> bool:
    """Tells whether an operator changes its first argument."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _base(node: Node) -> tuple[Node, bool]:
    """Returns the value whose memory an operator changes, and whether others read it, apart from `detach`."""
    detached = read = False
    while isinstance(node.target, torch._ops.OpOverload) and (node.target.is_view or _changes(node)):
        detached |= node.target is _DETACH
        source = node.args[0]
        assert isinstance(source, Node)
        read |= detached and len(source.users) > 1
        node = source
    return node, read
