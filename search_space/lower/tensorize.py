"""Tensorize: matches the loops inside an axis with an instruction and replaces them by one call."""

from __future__ import annotations

from collections.abc import Mapping

from search_space.ir.expr import Expr, const, substitute, var, walk
from search_space.ir.polynomial import canon
from search_space.ir.stmt import Intrinsic, Operand, Store
from search_space.lower.domains import Bounds, loop_var
from search_space.schedule.errors import ScheduleError
from search_space.schedule.intrinsics import get_intrinsic
from search_space.schedule.patterns import expression_pattern, pattern_of_load
from search_space.schedule.state import Stage


def make_intrinsic_call(
    stage: Stage, depth: int, update: Store, bounds: Bounds, name: str, rest: Mapping[str, Expr]
) -> Intrinsic:
    """Makes the call that computes what `update` does under the loops from `depth` inward.

    Args:
        rest: extents of loops that are shorter here, after the loops that were peeled.

    Raises:
        ScheduleError: the loops' extents or the expression are not the instruction's.
    """
    intrinsic = get_intrinsic(name)
    leaves = stage.leaves[depth:]
    extents = [rest.get(leaf, bounds.nests[stage.name].extents[leaf]) for leaf in leaves]
    # Numbers, not decisions: an instruction's size is fixed, so a symbolic extent never matches.
    if tuple(e.value if e.is_const else e for e in extents) != intrinsic.extents:
        got = ", ".join(f"{leaf}={e}" for leaf, e in zip(leaves, extents, strict=True))
        raise ScheduleError(f"`intrinsic` {name} must run over extents {intrinsic.extents}, but got {got}")
    loops = [loop_var(stage.name, leaf) for leaf in leaves]
    if expression_pattern(update.value, loops) != intrinsic.pattern or update.reducer != intrinsic.reducer:
        raise ScheduleError(f"`intrinsic` {name} must compute {intrinsic.pattern}, but the loops hold {update.value}")
    if update.predicate is not None:
        raise ScheduleError(f"`intrinsic` {name} must run unguarded, but got predicate {update.predicate}")
    loads = [n for n in walk(update.value) if n.op == "load"]
    # Products are commutative and the workload may name its factors either way; the instruction has one order.
    ordered = sorted(loads, key=lambda n: intrinsic.operand_order(pattern_of_load(n, loops)))
    output = _operand(update.buffer, update.indices, loops)
    inputs = tuple(_operand(n.args[0], n.args[1:], loops) for n in ordered)
    # Without a reduce loop around it, lowering writes no initialisation, and the call has to start from zero.
    whole = not any(stage.is_reduce(leaf) for leaf in stage.leaves[:depth])
    if whole and stage.reducer not in (None, "sum"):
        raise ScheduleError(f"`intrinsic` {name} must sum where it does a whole reduction, but got {stage.reducer}")
    return Intrinsic(name, output, inputs, reset=stage.reducer is not None and whole)


def _operand(buffer: str, indices: tuple[Expr, ...], loops: list[str]) -> Operand:
    # The start of the tile, and its elements relative to `#0`, `#1`, …: targets take strides from the latter.
    zero = {loop: const(0) for loop in loops}
    base = tuple(canon(substitute(i, zero)) for i in indices)
    point = {loop: var(f"#{i}") for i, loop in enumerate(loops)}
    return Operand(buffer, base, tuple(canon(substitute(i, point)) for i in indices))
