"""Products with zeros of a padded border, which kernels skip: see `search_space.lower.borders`."""

from __future__ import annotations

from costmodel.features.nest import Nest
from costmodel.features.spans import step
from costmodel.features.statement import Loop
from search_space.ir.expr import Expr, variables
from search_space.ir.tape import Value

FAR = 1e9  # step where no loop over a window moves the index


def executed_share(nest: Nest) -> Value:
    """Returns the share of a statement's instructions that is executed, as some products with zeros are skipped.

    They are skipped if one unrolled tile has all positions along a dimension. They are also skipped if a tile has one
    of them, as the loop over the window then leaves out positions outside. The share assumes that each position in the
    window that reaches into the border does so for one output. This is exact for windows of three.
    """
    statement, tape = nest.statement, nest.tape
    depths: dict[Expr, list[Value]] = {}  # depths of the border in front and behind, by index
    for condition in statement.inside:
        left, right = condition.args
        if left.is_const != right.is_const:
            index = right if left.is_const else left
            depth = nest.columns(left) if left.is_const else _beyond(nest, index, right)
            depths.setdefault(index, []).append(depth.most(0))
    share = tape.const(1)
    for index, borders in depths.items():
        moving = [loop for loop in statement.loops if loop.var in variables(index)]
        within = [loop for loop in moving if statement.is_reduction(loop)]
        unrolled = _positions(nest, index, [loop for loop in moving if loop.runtime]) <= 1
        alone = _positions(nest, index, [loop for loop in moving if not loop.runtime]) <= 1
        window, apart = _positions(nest, index, within), tape.const(FAR)
        for loop in within:
            move = step(index, loop.var, nest.columns).magnitude()
            apart = apart.least((move <= 0).otherwise(FAR, move))
        lost = tape.total(depth.ceildiv(apart).least(window) for depth in borders)
        rest = (tape.const(1) - lost / _positions(nest, index, moving).most(1)).most(0)
        shorter = alone.otherwise((window <= 1).otherwise(1, rest), 1)  # share of the window that its loop runs over
        share = share * unrolled.otherwise(rest, shorter)
    return share


def _beyond(nest: Nest, index: Expr, end: Expr) -> Value:
    """Returns how far an index reaches past the last element inside."""
    widths = nest.widths(index)
    return nest.tape.const(0) if widths is None else widths[0] + 1 - nest.columns(end)


def _positions(nest: Nest, e: Expr, loops: list[Loop]) -> Value:
    """Counts the values that an index takes while some loops run, each value once."""
    tape, names = nest.tape, {loop.var for loop in loops}
    if not variables(e) & names:
        return tape.const(1)
    if e.op == "var":
        return nest.product(lambda loop: loop.var == e.args[0])
    parts = [_positions(nest, part, loops) for part in e.operands]
    if e.op == "floordiv":
        return (parts[0] / nest.columns(e.args[1]).most(1)).most(1)
    if e.op == "mod":
        return parts[0].least(nest.columns(e.args[1]).most(1))
    return tape.product(parts)
