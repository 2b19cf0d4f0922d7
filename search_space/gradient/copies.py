"""Copies: stages that put each element of a tensor in one place, such as a padded tensor.

A stage that reads a copy has a gradient by the copied tensor: without zeros around it, and without a stage that cuts
them off again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from search_space.gradient.gather import NotAffine, solve_reads
from search_space.ir.access import conjuncts
from search_space.ir.expr import Expr, substitute, var, walk
from search_space.tensor import Operation, Tensor


@dataclass(frozen=True)
class Copy:
    """A stage that reads each element of another tensor once.

    Attributes:
        source: tensor that is copied.
        indices: names of the indices of an element of the source.
        positions: indices of the element in the copy, in these names.
    """

    source: Tensor
    indices: tuple[str, ...]
    positions: tuple[Expr, ...]

    def locate(self, names: Sequence[str]) -> tuple[Expr, ...]:
        """Returns the indices in the copy of an element of the source, whose indices have other names."""
        values = {old: var(new) for old, new in zip(self.indices, names, strict=True)}
        return tuple(substitute(position, values) for position in self.positions)


def find_copy(op: Operation) -> Copy | None:
    """Describes a stage as a copy of the tensor that it reads; None if it is no copy, or leaves elements out."""
    reads = list(_read_elements(op.body)) if op.body is not None and op.reducer is None else []
    if len(reads) != 1 or reads[0][0] is None:
        return None
    load, guards = reads[0][0], reads[0][1]
    source: Tensor = load.args[0]
    names = tuple(f"{op.name}_{number}" for number in range(len(source.shape)))
    axes = {axis.name: axis.extent for axis in op.axis}
    if axes.keys() & set(names):
        return None
    try:
        solution = solve_reads(load.args[1:], axes, dict(zip(names, source.shape, strict=True)), guards)
    except NotAffine:
        return None
    if solution.free or solution.test(guards):
        return None
    return Copy(source, names, tuple(solution.locate(axis.expr) for axis in op.axis))


def _read_elements(body: Expr) -> Iterator[tuple[Expr | None, tuple[Expr, ...]]]:
    """Lists the reads among which selections by index choose, with their conditions; None for any other value."""
    if body.op == "select" and not any(node.op == "load" for node in walk(body.args[0])):
        test, then, other = body.args
        for side, holds in ((then, True), (other, False)):
            for load, guards in _read_elements(side):
                yield load, (*conjuncts(test, holds), *guards)
    elif body.op == "load" and not any(node.op == "load" for index in body.args[1:] for node in walk(index)):
        yield body, ()
    elif not body.is_const:
        yield None, ()
