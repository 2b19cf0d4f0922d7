"""A graph that Dynamo traced for any shape, compiled once for a range of its sizes.

The graph is made at several sizes (`graph.frontends.aten.sizes.specialise`), and the common form of these is one
executable (`autotune.compiler.executable.graph_family`). Where that cannot be, each shape is compiled for itself, see
`program.Programs`.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx import GraphModule, Node

from autotune.compiler.executable.graph_family import GraphAt
from autotune.compiler.executable.shapes import NotOpen, ShapeSet
from autotune.graph.frontends.aten.sizes import UnknownShape
from autotune.graph.ir import Graph
from autotune.pytorch.building import LoadedGraph
from autotune.pytorch.calls import Call, OnOpenMemory, make_callable
from autotune.pytorch.pieces import Split
from autotune.pytorch.program import Program, describe, split_at
from search_space.terms import SizePoint

_LOG = logging.getLogger(__name__)
LEAST = 2
"""Least size that stays open, as Dynamo traces an extent of one by itself."""
MOST = 1 << 20
"""Bound of Dynamo from which on a size counts as unbounded."""

MakeOpen = Callable[[GraphAt, ShapeSet], LoadedGraph]
"""Sizes → an imported graph, and the shapes that it takes → the executable; raises NotOpen."""


@dataclass(frozen=True)
class _Size:
    """A size of a graph, and the input that tells it.

    Attributes:
        symbol: symbol of Dynamo.
        position: index of the input.
        axis: axis of the input, which is a tensor; None: the input is the number.
        least, greatest: range that Dynamo allows; `greatest` is None if it knows none.
    """

    symbol: sympy.Symbol
    position: int
    axis: int | None
    least: int
    greatest: int | None

    def of(self, inputs: Sequence[Any]) -> int:
        """Reads the size from the inputs of a call."""
        given = inputs[self.position]
        return int(given if self.axis is None else given.shape[self.axis])


class OpenProgram:
    """One graph of any shape by an executable that takes all sizes up to some.

    Args:
        module: the graph.
        fixed: places of inputs that are constants.
        make: compiles it.
        greatest: initial bound of each size. A call with a larger one recompiles the graph, for sizes up to the next
            power of two.

    Raises:
        NotOpen: a graph whose sizes cannot stay open. Calls raise it, too, before they have compiled anything.
    """

    def __init__(self, module: GraphModule, fixed: Sequence[int], make: MakeOpen, greatest: int) -> None:
        self._graph = _OpenGraph(module, fixed, make, greatest)
        self._program = Program(module, fixed, self._graph.compile_for)

    def __call__(self, *inputs: Any) -> Any:
        """Runs one inference; threads may call at the same time."""
        greatest = self._graph.greatest
        for number, size in enumerate(self._graph.sizes):
            extent = size.of(inputs)
            if extent < size.least:  # as for sizes that are marked to be of any value
                raise NotOpen(f"sizes must be at least {size.least}, but got {extent}")
            if extent > greatest[number]:
                with self._program.change():
                    greatest[number] = _up_to(size, 1 << extent.bit_length())
                _LOG.info("a graph of any shape has come with a size of %d: it is compiled for larger ones", extent)
        return self._program(*inputs)


class _OpenGraph:
    """A graph that is compiled as a whole, for all sizes up to some; for the arguments see `OpenProgram`.

    Attributes:
        sizes: sizes of the graph.
        greatest: current bound of each size.
    """

    def __init__(self, module: GraphModule, fixed: Sequence[int], make: MakeOpen, greatest: int) -> None:
        self._module, self._fixed, self._make = module, tuple(fixed), make
        self._placeholders = module.graph.find_nodes(op="placeholder")
        self.sizes = _sizes_in([node.meta.get("val") for node in self._placeholders])
        self.greatest = [_up_to(size, greatest) for size in self.sizes]

    def compile_for(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compiles the graph with the constants of a call.

        Raises:
            NotOpen: a graph that is not one at all sizes.
        """
        spans = {
            str(size.symbol): (size.least, greatest) for size, greatest in zip(self.sizes, self.greatest, strict=True)
        }
        splits: dict[SizePoint, Split] = {}

        def graph_at(point: SizePoint) -> Graph:
            splits[point] = self._split_at(point, inputs)
            return splits[point].pieces[0].graph

        loaded = self._make(graph_at, ShapeSet.of(spans))
        split = splits[tuple(self.greatest)]
        (piece,) = split.pieces
        if any(other.pieces[0].checks != piece.checks for other in splits.values()):
            raise NotOpen("indices of a graph of open sizes must be places of axes that are known, but they are not")
        names = [str(size.symbol) for size in self.sizes]
        call: Call = OnOpenMemory(loaded, names, piece.checks, len(piece.examples))
        _LOG.info("%s, for sizes %s", describe(split), ", ".join(f"{n} {a} to {b}" for n, (a, b) in spans.items()))
        return make_callable(split, [call])

    def _split_at(self, point: SizePoint, inputs: Sequence[Any]) -> Split:
        """Splits the graph at some sizes; it must be one piece that gives all outputs.

        Raises:
            NotOpen: it is not.
        """
        known = {size.symbol: number for size, number in zip(self.sizes, point, strict=True)}
        values = [
            inputs[place] if place in self._fixed else _at(node.meta.get("val"), known)
            for place, node in enumerate(self._placeholders)
        ]
        try:
            split = split_at(self._module, self._fixed, values)
        except UnknownShape as error:
            raise NotOpen(str(error)) from error
        if split.refusals or len(split.pieces) != 1:
            raise NotOpen("a graph of open sizes must be one piece, but it is not")
        if not all(value.is_contiguous() for value in split.pieces[0].examples):
            raise NotOpen("outputs of a graph of open sizes must be contiguous, but they are not")
        outputs: Any = split.module.graph.output_node().args[0]
        if not all(isinstance(value, Node) and value.target is operator.getitem for value in outputs):
            raise NotOpen("outputs of a graph of open sizes must be computed tensors, but there are others")
        return split


def _sizes_in(values: Sequence[Any]) -> list[_Size]:
    """Lists the sizes of a graph.

    Raises:
        NotOpen: a size that no input tells, or a float or truth value.
    """
    sizes: dict[sympy.Symbol, _Size] = {}
    mentioned: set[sympy.Symbol] = set()
    for index, value in enumerate(values):
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            raise NotOpen("numbers among the inputs must be whole where sizes are open, but one is not")
        extents: Sequence[Any] = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        for axis, extent in enumerate(extents):
            if not isinstance(extent, torch.SymInt):
                continue
            expression = extent.node.expr
            mentioned |= expression.free_symbols
            shape = len(value.shape) if isinstance(value, torch.Tensor) else 1
            if isinstance(expression, sympy.Symbol) and axis < shape:
                sizes.setdefault(expression, _size(extent, index, axis if isinstance(value, torch.Tensor) else None))
    if missing := mentioned - sizes.keys():
        raise NotOpen(f"sizes must be extents of inputs, but {', '.join(map(str, missing))} are none")
    return list(sizes.values())


def _size(extent: torch.SymInt, position: int, axis: int | None) -> _Size:
    symbol = extent.node.expr
    bounds = extent.node.shape_env.bound_sympy(symbol)
    least = max(LEAST, int(bounds.lower)) if bounds.lower.is_finite else LEAST
    greatest = int(bounds.upper) if bounds.upper.is_finite and bounds.upper < MOST else None
    return _Size(symbol, position, axis, least, greatest)


def _up_to(size: _Size, greatest: int) -> int:
    """Returns the bound of a size: `greatest`, or Dynamo's bound."""
    return max(size.least + 1, greatest if size.greatest is None else size.greatest)


def _at(value: Any, sizes: Mapping[sympy.Symbol, int]) -> Any:
    """Makes an input at some sizes, without contents."""

    def number(extent: Any) -> int:
        return int(extent.node.expr.subs(sizes)) if isinstance(extent, torch.SymInt) else extent

    if not isinstance(value, torch.Tensor):
        return number(value)
    shape, strides = [number(e) for e in value.shape], [number(s) for s in value.stride()]
    return torch.empty_strided(shape, strides, dtype=value.dtype)
