"""Hardware instructions as data: the computation on one tile, and the name under which targets emit it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from search_space.ir.expr import Expr, walk
from search_space.schedule.errors import ScheduleError
from search_space.schedule.patterns import expression_pattern, pattern_of_load
from search_space.tensor import Operation


@dataclass(frozen=True)
class Fragment:
    """The distribution of a tile of a matrix to the registers of a warp's lanes.

    Attributes:
        shape: rows and columns of the tile.
        lane: the lane that holds the element (row, column), as an expression in these; register: its place there.
        registers: elements that each lane holds.
    """

    shape: tuple[int, int]
    lane: Callable[[Expr, Expr], Expr]
    register: Callable[[Expr, Expr], Expr]
    registers: int


@dataclass(frozen=True, eq=False)
class TensorIntrin:
    """An instruction that is declared by the tensor expression of one tile.

    Attributes:
        name: name in traces.
        op: the computation on one tile; the order of its inputs is the order of the operands.
        feature: the hardware feature it needs (`avx512_vnni`), or "".
        fragments: layouts of operands in the registers of a warp: those of the inputs, then the output's; None for an
            operand elsewhere. Empty for instructions of one thread; the lanes of a warp execute the others together.
        steps: multiply-adds on whole vectors that it stands for; 1: one instruction.
    """

    name: str
    op: Operation
    feature: str = ""
    fragments: tuple[Fragment | None, ...] = ()
    steps: int = 1

    @property
    def loops(self) -> list[str]:
        return [a.name for a in (*self.op.axis, *self.op.reduce_axis)]

    @property
    def extents(self) -> tuple[int, ...]:
        """Trip counts of the loops it replaces, outermost first."""
        return tuple(a.extent for a in (*self.op.axis, *self.op.reduce_axis))

    @property
    def reducer(self) -> str | None:
        return self.op.reducer

    @property
    def pattern(self) -> str:
        assert self.op.body is not None
        return expression_pattern(self.op.body, self.loops)

    def operand_order(self, load_pattern: str) -> int:
        """Returns the position of an operand among the instruction's inputs, by the pattern of its load."""
        assert self.op.body is not None
        loads = [n for n in walk(self.op.body) if n.op == "load"]
        order = {t: i for i, t in enumerate(self.op.inputs)}
        found = {pattern_of_load(n, self.loops): order[n.args[0]] for n in loads}
        return found[load_pattern]


DECLARED_IN = ("search_space.intrinsics", "search_space.warp_intrinsics", "search_space.warpgroup_intrinsics")
"""Modules that declare the instructions of machines: imported for an unknown name, as in a new worker."""
_INTRINSICS: dict[str, TensorIntrin] = {}


def register_intrinsic(intrinsic: TensorIntrin) -> TensorIntrin:
    """Makes an instruction known by its name to traces and lowering."""
    _INTRINSICS[intrinsic.name] = intrinsic
    return intrinsic


_FAMILIES: dict[str, Callable[[str], TensorIntrin]] = {}


def register_family(prefix: str, make: Callable[[str], TensorIntrin]) -> None:
    """Registers instructions of any size: `make` gets the text after `prefix` and a colon in the name.

    Args:
        prefix: text before the colon.
        make: function that raises ValueError for invalid sizes.
    """
    _FAMILIES[prefix] = make


def get_intrinsic(name: str) -> TensorIntrin:
    """Returns the instruction with a name.

    Raises:
        ScheduleError: no instruction has the name.
    """
    family, colon, sizes = name.partition(":")
    if name not in _INTRINSICS and family not in _FAMILIES:
        for module in DECLARED_IN:
            import_module(module)
    if colon and family in _FAMILIES and name not in _INTRINSICS:
        try:
            return _FAMILIES[family](sizes)
        except ValueError as error:
            raise ScheduleError(str(error)) from error
    if name not in _INTRINSICS:
        raise ScheduleError(f"`intrinsic` must be one of {', '.join(_INTRINSICS) or 'none'}, but got {name!r}")
    return _INTRINSICS[name]


__all__ = ["Fragment", "TensorIntrin", "get_intrinsic", "register_family", "register_intrinsic"]
