"""Channels in groups: neighbours along an output axis read the same inputs, until the next group begins."""

from __future__ import annotations

from search_space.ir.expr import Expr, const, transform, var, variables, walk
from search_space.ir.polynomial import canon, poly
from search_space.schedule.state import Stage
from search_space.sketch.tables import vector_tiles

MAX_VECTORS = 8
"""Greatest number of vectors along the last axis in a register tile."""

MOST_WORDS = 32
"""Greatest number of words that lanes may select factors from: a permutation selects from two vectors."""


def group_width(stage: Stage) -> int:
    """Returns the number of neighbours along the last axis with equal reads, such as the outputs of a group, or 1."""
    axis = var(stage.axes[-1].name)
    divisions = (node for node in walk(stage.body) if node.op == "floordiv" and node.args[0] is axis)
    return next((int(node.args[1].value) for node in divisions if node.args[1].is_const), 1)


def group_tiles(stage: Stage, lanes: int) -> list[tuple[int, int]]:
    """Lists tiles (blocks, vectors) that divide the last axis; each begins with a group or lies within one."""
    extent, width = int(stage.axes[-1].extent.value), group_width(stage)
    aligned = width % lanes == 0 or lanes % width == 0
    return [
        (blocks, vectors)
        for blocks, vectors in vector_tiles(extent, lanes, MAX_VECTORS)
        if extent % (blocks * vectors * lanes) == 0 and (aligned or vectors * lanes % width == 0)
    ]


def of_one_group(body: Expr, stage: Stage, lanes: int) -> Expr:
    """Returns a stage's body for the lanes of one vector, if they all lie in one group: that of the first group."""
    width, last = group_width(stage), var(stage.axes[-1].name)
    if width % lanes or not group_tiles(stage, lanes):
        return body
    return transform(body, lambda node: const(0) if node is last // width else None)


def in_groups(stage: Stage, node: Expr, axis: str, lanes: int, depth: int) -> bool:
    """Tells whether a load gives each lane `depth` neighbours along a reduce axis, lanes by group along the last axis.

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
