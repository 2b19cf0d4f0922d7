"""How many elements a vector of a stage holds: those of float32, twice as many where 16-bit floats are only moved."""

from __future__ import annotations

from search_space.dtypes import NARROW
from search_space.hardware import Hardware
from search_space.ir.expr import Expr, walk
from search_space.lower.inline import expanded
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft
from search_space.sketch.tables import MAX_WASTE, ceildiv


def lanes_of(draft: Draft, stage: Stage, hardware: Hardware) -> int:
    """Elements of a vector along the last axis: more than of float32 only where the axis fills them."""
    lanes, extent = hardware.float_lanes, int(stage.axes[-1].extent.value) if stage.axes else 1
    wide = 2 * lanes
    fills = ceildiv(extent, wide) * wide <= extent * MAX_WASTE
    return wide if fills and stage.dtype in NARROW and moves(expanded(stage, draft.state)) else lanes


def moves(body: Expr) -> bool:
    """Whether an expression gives elements as they are, and computes with none."""
    if body.op == "load":
        return not any(node.op == "load" for index in body.args[1:] for node in walk(index))
    if body.op == "select":
        condition, *values = body.args
        return not any(node.op == "load" for node in walk(condition)) and all(map(moves, values))
    return body.op == "const"
