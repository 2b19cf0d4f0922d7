"""The number of elements in a vector of a stage: of float32, or more if 16-bit floats or bytes are only moved."""

from __future__ import annotations

from collections.abc import Sequence

from search_space.dtypes import NARROW
from search_space.hardware import Hardware
from search_space.ir.expr import Expr, dtype_bytes, var, variables, walk
from search_space.lower.inline import expand_body
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft
from search_space.sketch.tables import MAX_WASTE, ceildiv


def select_lanes(draft: Draft, stage: Stage, hardware: Hardware) -> int:
    """Returns the elements of a vector along the last axis: more than of float32 only if the axis fills them."""
    lanes, extent = hardware.float_lanes, int(stage.axes[-1].extent.value) if stage.axes else 1
    wide = 2 * lanes
    fills = ceildiv(extent, wide) * wide <= extent * MAX_WASTE
    return wide if fills and stage.dtype in NARROW and moves(expand_body(stage, draft.state)) else lanes


def copied_lanes(draft: Draft, stage: Stage, hardware: Hardware) -> int:
    """Returns the elements of a vector of a copy that fills a register; the last vector may begin earlier.

    There are more than of float32, and no more than the last axis has; 0 if the source has another order, or a
    condition differs between lanes.
    """
    body, last = expand_body(stage, draft.state), stage.axes[-1]
    lanes, extent = hardware.vector_bytes // dtype_bytes(stage.dtype), int(last.extent.value)
    while lanes > extent:
        lanes //= 2
    loads = [n for n in walk(body) if n.op == "load"]
    along = all(n.args[-1] is var(last.name) and last.name not in _names(n.args[1:-1]) for n in loads)
    plain = bool(loads) and along and moves(body) and not _conditional(body, last.name)
    return lanes if plain and lanes > hardware.float_lanes else 0


def _names(indices: Sequence[Expr]) -> set[str]:
    return {name for index in indices for name in variables(index)}


def _conditional(body: Expr, axis: str) -> bool:
    """Tells whether a condition in an expression depends on the axis, and so may differ between lanes."""
    return any(node.op == "select" and axis in variables(node.args[0]) for node in walk(body))


def moves(body: Expr) -> bool:
    """Tells whether an expression returns elements unchanged, without arithmetic."""
    if body.op == "load":
        return not any(node.op == "load" for index in body.args[1:] for node in walk(index))
    if body.op == "select":
        condition, *values = body.args
        return not any(node.op == "load" for node in walk(condition)) and all(map(moves, values))
    return body.op == "const"
