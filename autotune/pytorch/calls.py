"""Compiled pieces called on tensors: inputs are read where they lie, outputs written where they stay.

Tensors are not converted to NumPy arrays. Only two kinds are copied: inputs that are not dense or lie at an odd
address, and outputs that PyTorch would order otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import compress
from types import SimpleNamespace
from typing import Any

import torch

from autotune.compiler.executable.shapes import NotOpen
from autotune.graph.frontends.aten import IndexCheck
from autotune.graph.frontends.aten.tensors import array_from_tensor, tensor_from_array
from autotune.pytorch.building import LoadedGraph
from autotune.pytorch.kernels import GraphFunction
from autotune.pytorch.pieces import Piece, Split
from autotune.pytorch.saved_memory import SavedBlocks
from targets.base import Parameter
from targets.manifest import ExecutableError

Call = Callable[..., tuple[torch.Tensor, ...]]
"""Inputs of a piece's graph, in order → its outputs, tensors of the caller's own, laid out as PyTorch's would be."""

_CPU = torch.device("cpu")


def make_callable(split: Split, calls: Sequence[Call]) -> Callable[..., Any]:
    """Makes a function that runs a split graph; nothing but the function refers to the calls.

    Modules of FX are in reference cycles, which are freed some time after their last use: the function releases the
    calls at once.

    Args:
        split: the graph; its module stays as it is.
        calls: calls of its pieces, in order.
    """
    module = split.module
    module.recompile()
    names = {
        str(node.target).partition(".")[0] for node in module.graph.nodes if node.op in ("call_module", "get_attr")
    }
    attributes = {name: getattr(module, name) for name in names}
    attributes |= {piece.target: call for piece, call in zip(split.pieces, calls, strict=True)}
    return partial(type(module).forward, SimpleNamespace(**attributes))


def make_call(piece: Piece, run: GraphFunction) -> Call:
    """Makes the call that replaces the module of a piece computed by `run`."""
    return OnMemory(piece, run) if isinstance(run, LoadedGraph) else by_arrays(piece, run)


def by_arrays(piece: Piece, run: GraphFunction) -> Call:
    """Makes the call of a piece by a function from NumPy arrays to NumPy arrays."""

    def call(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = [
            tensor_from_array(array) for array in run([array_from_tensor(tensor.contiguous()) for tensor in inputs])
        ]
        check_indices(piece.checks, inputs, outputs)
        return tuple(map(laid_out, outputs[: len(piece.examples)], piece.examples))

    return call


class OutsideError(IndexError):
    """Indices outside of an axis: PyTorch reports them in its own words, or gives them a meaning."""


def check_indices(
    checks: Sequence[IndexCheck], inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> None:
    """Holds indices against the axes that they are places of; kernels read the nearest element in place of others.

    Raises:
        OutsideError: one that is outside.
    """
    for check in checks:
        # NumPy's, in this thread: PyTorch would wake its own threads beside those of the kernels
        array = (inputs if check.is_input else outputs)[check.position].numpy()
        least, most = array.min(), array.max()
        if least < check.inside.start or most >= check.inside.stop:
            raise OutsideError(f"indices must be in {check.inside}, but got {least} to {most}")


def laid_out(tensor: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Copies a dense tensor to the strides that PyTorch would have given it."""
    if result.is_contiguous():
        return tensor
    shape, strides = result.shape, result.stride()
    for axis in [axis for axis, stride in enumerate(strides) if not stride]:
        tensor = tensor.narrow(axis, 0, 1)  # one element in memory, which is shown as often as it is there
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=_CPU).copy_(tensor).expand(shape)


class OnMemory:
    """Call of a piece by an executable that takes addresses.

    Each call looks whether tensors are as the executable takes them: a wrong address would be no error but a crash.

    Args:
        piece: piece to compute.
        loaded_graph: its executable, which may be replaced by another one of the same graph between two calls.
    """

    def __init__(self, piece: Piece, loaded_graph: LoadedGraph) -> None:
        self._loaded_graph, self._examples, self._checks = loaded_graph, piece.examples, piece.checks
        inputs, outputs = loaded_graph.executable.inputs, loaded_graph.executable.outputs
        self._inputs = [(torch.Size(p.shape), getattr(torch, p.dtype)) for p in inputs]
        strides = [made.stride() if made.is_contiguous() else _dense(made.shape) for made in piece.examples]
        strides += [_dense(p.shape) for p in outputs[len(strides) :]]
        self._outputs = [(p.shape, each, getattr(torch, p.dtype)) for p, each in zip(outputs, strides, strict=True)]
        self._as_made = all(made.is_contiguous() for made in piece.examples)
        saved = [*piece.saved, *[False] * (len(self._outputs) - len(piece.saved))]
        self._is_saved = saved if any(saved) and self._as_made else []
        self._blocks = SavedBlocks(list(compress(self._outputs, self._is_saved)))

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Computes the outputs of the piece.

        Raises:
            ExecutableError: a tensor of another shape or type than the piece was compiled for.
            OutsideError: an index that is outside of its axis.
        """
        arguments: list[torch.Tensor] = []
        for tensor, (shape, dtype) in zip(inputs, self._inputs, strict=True):
            arguments.append(_usable(tensor, shape, dtype, len(arguments)))
        outputs = self._allocate_outputs()
        self._loaded_graph.executable.infer_at([tensor.data_ptr() for tensor in (*arguments, *outputs)])
        if self._checks:
            check_indices(self._checks, arguments, outputs)
            del outputs[len(self._examples) :]
        if self._as_made:
            return tuple(outputs)
        return tuple(map(laid_out, outputs, self._examples))

    def _allocate_outputs(self) -> list[torch.Tensor]:
        """Allocates outputs: those that a backward graph alone reads in a block, the others by themselves."""
        if not self._is_saved:
            return [_allocate(*output) for output in self._outputs]
        blocks = iter(self._blocks.take())
        pairs = zip(self._outputs, self._is_saved, strict=True)
        return [next(blocks) if is_saved else _allocate(*output) for output, is_saved in pairs]


def _allocate(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device=_CPU)


class OnOpenMemory:
    """Call of a piece whose executable takes sizes, and whose outputs are dense.

    Args:
        loaded_graph: its executable.
        names: names of the sizes, in the executable's order.
        checks: checks of indices.
        count: number of outputs to return.

    Raises:
        NotOpen: a size that is the extent of no input of the piece.
    """

    def __init__(
        self, loaded_graph: LoadedGraph, names: Sequence[str], checks: Sequence[IndexCheck], count: int
    ) -> None:
        self._loaded_graph, self._checks, self._count = loaded_graph, checks, count
        executable = loaded_graph.executable
        self._inputs = [(p, getattr(torch, p.dtype)) for p in executable.inputs]
        self._outputs = [(p, getattr(torch, p.dtype)) for p in executable.outputs]
        self._size_positions: list[tuple[int, int]] = []
        for name in names:
            found = [(i, p.extents.index(name)) for i, p in enumerate(executable.inputs) if name in p.extents]
            if not found:
                raise NotOpen(f"sizes must be extents of inputs that are read, but {name} is none")
            self._size_positions.append(found[0])
        arrays = [p for p, _ in self._inputs], [p for p, _ in self._outputs]
        self._shapes = lru_cache(_MOST_CACHED)(partial(_shapes_at, *arrays, tuple(names)))

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Computes the outputs of the piece.

        Raises:
            ExecutableError: a tensor of another shape or type than the piece takes, or a size out of its range.
            OutsideError: an index that is outside of its axis.
        """
        sizes = tuple(inputs[place].shape[axis] for place, axis in self._size_positions)
        shapes, made_shapes = self._shapes(sizes)
        arguments: list[torch.Tensor] = []
        for tensor, shape, (_, dtype) in zip(inputs, shapes, self._inputs, strict=True):
            arguments.append(_usable(tensor, shape, dtype, len(arguments)))
        outputs = [
            torch.empty(shape, dtype=dtype, device=_CPU)
            for shape, (_, dtype) in zip(made_shapes, self._outputs, strict=True)
        ]
        self._loaded_graph.executable.infer_at([tensor.data_ptr() for tensor in (*arguments, *outputs)], sizes)
        check_indices(self._checks, arguments, outputs)
        return tuple(outputs[: self._count])


_MOST_CACHED = 256
"""Sizes whose shapes are kept."""

_Shapes = list[torch.Size]


def _shapes_at(
    inputs: Sequence[Parameter], outputs: Sequence[Parameter], names: Sequence[str], sizes: Sequence[int]
) -> tuple[_Shapes, _Shapes]:
    """Computes shapes of inputs and of outputs at some sizes."""
    known = dict(zip(names, sizes, strict=True))
    return [torch.Size(p.at(known).shape) for p in inputs], [torch.Size(p.at(known).shape) for p in outputs]


def _usable(tensor: torch.Tensor, shape: torch.Size, dtype: torch.dtype, number: int) -> torch.Tensor:
    """Returns an input that executables can read: a copy if it is not dense or lies at an odd address.

    Raises:
        ExecutableError: it is of another shape or type, or elsewhere.
    """
    if tensor.shape != shape or tensor.dtype != dtype or not tensor.is_cpu:
        raise ExecutableError(
            f"input {number} must be {dtype} of shape {tuple(shape)} on the CPU, "
            f"but got {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device.type}"
        )
    address = tensor.data_ptr()
    if not tensor.is_contiguous() or tensor.is_neg() or address % dtype.itemsize or tensor._is_zerotensor():
        return _copy_densely(tensor)
    return tensor


def _copy_densely(tensor: torch.Tensor) -> torch.Tensor:
    """Copies a tensor densely into new memory."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=_CPU).copy_(tensor.detach())


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Computes row-major strides."""
    return tuple(math.prod(shape[place + 1 :]) for place in range(len(shape)))
