"""Export of PyTorch modules by `torch.export` in evaluation mode."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._dynamo.exc import TorchDynamoException
from torch.export import Dim, ExportedProgram, ShapesCollection
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from autotune.graph.errors import UnsupportedModelError
from autotune.graph.frontends.aten.sizes import DEPENDS
from search_space.ir.intervals import Span

_LEAVES = (torch.Tensor, bool, int, float, str, type(None))
Shape = Sequence[int | str]


def export(
    module: torch.nn.Module,
    inputs: Any,
    shapes: Mapping[str, Shape] | None = None,
    sizes: Mapping[str, Span] | None = None,
) -> ExportedProgram:
    """Exports a module in evaluation mode and restores its mode afterwards.

    Args:
        module: module on the CPU.
        inputs: a tensor, a tuple of arguments of `forward`, or a mapping of them by name, which may also be the last of
            a tuple. Arguments may be tuples, lists and mappings of tensors. Numbers become part of the program.
        shapes: shapes of inputs by name; extents that are names in `sizes` stay open.
        sizes: minimum and maximum of each open size, by name.

    Raises:
        UnsupportedModelError: an input is not a tensor or number, shapes disagree with `inputs`, or `torch.export`
            refuses the module, for example because its `forward` branches on data.
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedModelError(
            "`model` must be a torch.nn.Module that is not compiled by TorchScript, but got ScriptModule"
        )
    args, kwargs = _arguments(module, inputs)
    for value in tree_leaves((args, kwargs)):
        if not isinstance(value, _LEAVES):
            raise UnsupportedModelError(
                f"`example_inputs` must be a tensor or a tuple of tensors, but got {type(value).__name__}"
            )
    with _evaluating(module):
        program = _export(module, args, kwargs, None)
        opened = _open_axes(program, args, kwargs, shapes or {}, sizes or {})
        return program if opened is None else _export(module, *opened)


def _arguments(module: torch.nn.Module, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Splits inputs into positional and keyword arguments."""
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    if args and isinstance(args[-1], Mapping):
        parameters = inspect.signature(module.forward).parameters.values()
        names = {each.name for each in parameters}
        if set(args[-1]) <= names or any(each.kind is each.VAR_KEYWORD for each in parameters):
            return args[:-1], dict(args[-1])
    return args, {}


def _export(module: torch.nn.Module, args: Any, kwargs: Any, shapes: Any) -> ExportedProgram:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns about its own layers while it traces them
        try:
            return torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=False)
        except (TorchDynamoException, *DEPENDS) as error:
            said = str(error).strip().partition("\n\n")[0].replace("\n", " ")
            raise UnsupportedModelError(f"torch.export must take {type(module).__name__}, but says: {said}") from error


def _open_axes(
    program: ExportedProgram, args: Any, kwargs: Any, shapes: Mapping[str, Shape], sizes: Mapping[str, Span]
) -> tuple[Any, Any, Any] | None:
    """Returns arguments enlarged to the maximum sizes, and their open axes; None without open axes.

    Raises:
        UnsupportedModelError: shapes are of other inputs, or of another rank or extent than the inputs.
    """
    leaves, spec = tree_flatten((args, kwargs))
    names = program.graph_signature.user_inputs
    tensors = {str(name): leaf for name, leaf in zip(names, leaves, strict=True) if isinstance(leaf, torch.Tensor)}
    dims = {name: Dim(name, min=low, max=high) for name, (low, high) in sizes.items()}
    collection: Any = ShapesCollection()  # type: ignore[no-untyped-call]
    opened = False
    for name, shape in shapes.items():
        check_shape(name, shape, {key: tuple(tensor.shape) for key, tensor in tensors.items()})
        axes = {axis: dims[extent] for axis, extent in enumerate(shape) if isinstance(extent, str)}
        tensor = tensors[name]
        for axis, extent in enumerate(shape):
            if isinstance(extent, str):
                places = torch.arange(max(sizes[extent][1], 2)) % tensor.shape[axis]
                tensor = tensor.index_select(axis, places)
        if axes:
            tensors[name], opened = tensor, True
            collection[tensor] = axes
    if not opened:
        return None
    wide = [tensors.get(str(name), leaf) for name, leaf in zip(names, leaves, strict=True)]
    args, kwargs = tree_unflatten(wide, spec)
    return args, kwargs, collection


def check_shape(name: str, shape: Shape, inputs: Mapping[str, Sequence[int | None]]) -> None:
    """Checks a shape against those of inputs by name, whose open extents are None.

    Raises:
        UnsupportedModelError: there is no such input, or it has another rank or extent.
    """
    if name not in inputs:
        raise UnsupportedModelError(f"`shapes` must be of inputs of the model ({', '.join(inputs)}), but got {name!r}")
    own = inputs[name]
    if len(own) != len(shape):
        raise UnsupportedModelError(f"`shapes` of {name} must have {len(own)} dimensions, but got {list(shape)}")
    if any(isinstance(e, int) and o is not None and e != o for e, o in zip(shape, own, strict=True)):
        raise UnsupportedModelError(f"`shapes` of {name} must agree with the model's, but got {list(shape)}")


@contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Sets a module to evaluation mode, and restores training mode of its parts afterwards."""
    training = [part for part in module.modules() if part.training]
    try:
        module.eval()
        yield
    finally:
        for part in training:
            part.training = True
