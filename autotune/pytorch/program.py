"""Graphs of ATen's operators that run: compiled when their constants are there, and anew where those have changed."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

from autotune.graph.aten.tensors import array_of, tensor_of
from autotune.graph.ir import Graph
from autotune.pytorch.kernels import Compiled
from autotune.pytorch.pieces import Piece, Split, split
from autotune.pytorch.shapes import Recent, UnknownShape, sized, sizes_of, specialised

_LOG = logging.getLogger(__name__)


class Program:
    """One graph of known shapes, or one of any shape at the sizes of its calls.

    Args:
        module: the graph.
        fixed: places of inputs that are constants.
        make: compiles the graph of a piece.

    Attributes:
        found: the pieces of the last compilation; None before the first call, and where the graph is left to PyTorch.
    """

    def __init__(self, module: GraphModule, fixed: Sequence[int], make: Callable[[Graph], Compiled]) -> None:
        self._module, self._fixed, self._make = module, tuple(fixed), make
        self.found: Split | None = None
        self._kept: list[tuple[int, int]] = []
        self._run: Callable[..., Any] | None = None

    def __call__(self, *inputs: Any) -> Any:
        """One inference."""
        kept = [_state(inputs[place]) for place in self._fixed]
        if self._run is None or kept != self._kept:
            if self._run is not None:
                _LOG.warning("parameters of a compiled model have changed: it is compiled anew")
            with torch.no_grad():
                self._run = self._compiled(inputs)
            self._kept = kept
        return self._run(*inputs)

    def _compiled(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        try:
            found = split_at(self._module, self._fixed, inputs)
        except UnknownShape as error:
            warnings.warn(f"autotune leaves a graph to PyTorch: {error}", stacklevel=2)
            return self._module.forward
        for piece in found.pieces:
            setattr(found.module, piece.target, Computed(piece, self._make(piece.graph)))
        found.module.recompile()
        self.found = found
        _LOG.info("%s", described(found))
        return found.module.forward


class Programs:
    """One graph of any shape: compiled for each shape that it comes in, the last of which are kept.

    Args:
        module: the graph.
        fixed: places of inputs that are constants.
        make: compiles the graph of a piece.
        most: shapes that are kept.
    """

    def __init__(self, module: GraphModule, fixed: Sequence[int], make: Callable[[Graph], Compiled], most: int) -> None:
        self._places = sized(module)
        self._new = partial(Program, module, fixed, make)
        self._recent: Recent[Program] = Recent(most)

    def __call__(self, *inputs: Any) -> Any:
        """One inference."""
        return self._recent.of(sizes_of(inputs, self._places), self._new)(*inputs)


def split_at(module: GraphModule, fixed: Sequence[int], inputs: Sequence[Any]) -> Split:
    """A graph in pieces, at the sizes of some inputs where it is one of any shape.

    Args:
        module: stays as it is.
        fixed: places of inputs that are constants.
        inputs: of one call.

    Raises:
        UnknownShape: it is of any shape, and has sizes that depend on the elements of tensors.
    """
    if sized(module):
        module = specialised(module, inputs)
    placeholders = module.graph.find_nodes(op="placeholder")
    return split(module, {placeholders[place].name: inputs[place] for place in fixed})


def _state(tensor: torch.Tensor) -> tuple[int, int]:
    """What changes where a tensor does: another one, or written to."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def described(found: Split) -> str:
    """What became of a graph, in a sentence."""
    left = ", ".join(f"{count} {name}" for name, (count, _) in found.refused.items())
    return f"{len(found.pieces)} compiled pieces; left to PyTorch: {left or 'nothing'}"


class Computed(torch.nn.Module):
    """A compiled piece in the place of the module that stood for it.

    Args:
        piece: what it computes.
        run: how.
    """

    def __init__(self, piece: Piece, run: Compiled) -> None:
        super().__init__()
        self._places, self._run = piece.places, run
        self._strided = [_layout(tensor) for tensor in piece.made]

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Outputs of the piece, each laid out in memory as PyTorch's own: others may look at it by its strides."""
        found = self._run([array_of(inputs[place].contiguous()) for place in self._places])
        return tuple(_laid_out(tensor_of(a), how) for a, how in zip(found, self._strided, strict=True))


def _layout(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shape and strides of a tensor that is not contiguous; None of one that is."""
    return None if tensor.is_contiguous() else (tuple(tensor.shape), tuple(tensor.stride()))


def _laid_out(tensor: torch.Tensor, how: tuple[tuple[int, ...], tuple[int, ...]] | None) -> torch.Tensor:
    return tensor if how is None else torch.empty_strided(*how, dtype=tensor.dtype).copy_(tensor)
