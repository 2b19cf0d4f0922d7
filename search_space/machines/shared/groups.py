"""Channels in groups: neighbours along an output axis read the same inputs, those of the next group others."""

from __future__ import annotations

from search_space.ir.expr import Expr, const, transform, var, variables, walk
from search_space.ir.polynomial import canon, poly
from search_space.schedule.state import Stage
from search_space.sketch.tables import vector_tiles

MAX_VECTORS = 8
"""Along the last axis in a tile of registers, at most."""

MOST_WORDS = 32
"""Places that lanes may take what they multiply from: a permutation chooses from two vectors."""


def group_width(stage: Stage) -> int:
    """How many neighbours along the last axis read the same, as the outputs of a group do; 1 where none do."""
    axis = var(stage.axes[-1].name)
    divisions = (node for node in walk(stage.body) if node.op == "floordiv" and node.args[0] is axis)
    return next((int(node.args[1].value) for node in divisions if node.args[1].is_const), 1)


def group_tiles(stage: Stage, lanes: int) -> list[tuple[int, int]]:
    """Tiles (blocks, vectors) that divide the last axis, and of which each begins with a group or lies within one."""
    extent, width = int(stage.axes[-1].extent.value), group_width(stage)
    aligned = width % lanes == 0 or lanes % width == 0
    return [
        (blocks, vectors)
        for blocks, vectors in vector_tiles(extent, lanes, MAX_VECTORS)
        if extent % (blocks * vectors * lanes) == 0 and (aligned or vectors * lanes % width == 0)
    ]


def of_one_group(body: Expr, stage: Stage, lanes: int) -> Expr:
    """A stage's body as the lanes of one vector see it where they are all of one group: that of the first group."""
    width, last = group_width(stage), var(stage.axes[-1].name)
    if width % lanes or not group_tiles(stage, lanes):
        return body
    return transform(body, lambda node: const(0) if node is last // width else None)


def in_groups(stage: Stage, node: Expr, axis: str, lanes: int, depth: int) -> bool:
    """Whether a load gives lanes along the stage's last axis, by group, `depth` neighbours along a reduce axis each.

    Its last index is `last // width * channels + axis`, so that lanes take whole words of `depth` elements, and these
    lie close to each other; nothing else in it depends on either axis.
    """
    last, (*others, index) = stage.axes[-1].name, node.args[1:]
    begin = poly(canon(index - var(axis)))
    if len(begin) != 1 or any(variables(other) & {last, axis} for other in others) or not group_tiles(stage, lanes):
        return False
    ((factors, channels),) = begin.items()
    width = group_width(stage)
    if factors != ((var(last) // width,) if width > 1 else (var(last),)) or channels % depth:
        return False
    groups = -(-lanes // width) + (lanes % width != 0 and width % lanes != 0)
    return (groups - 1) * channels // depth < MOST_WORDS
