"""Rows of an intermediate array a cache line further apart, where they would crowd on few sets of the first cache.

Pixels of 1,024 channels in float32 lie 4 KiB apart: of a cache of 64 sets and eight ways they fill one set, so that no
more than eight of them fit, while a tile of registers is computed from two dozen at once, again and again. One more
line from pixel to pixel, and they fall on all sets.
"""

from __future__ import annotations

import math

from search_space.hardware import Hardware
from search_space.ir.expr import dtype_bytes, substitute
from search_space.schedule.steps import Relayout
from search_space.sketch.base import Draft
from search_space.sketch.reads import reads_of

LINE = 64
"""Bytes of a cache line."""

ROWS = 28
"""Rows that the largest tile of registers reads at once, and again before it goes on to others."""


def spread(draft: Draft, name: str, hardware: Hardware) -> Draft:
    """The draft with the rows of a stage a line further apart, if too few of them fit the first cache as they are."""
    stage = draft.state.stage(name)
    element = dtype_bytes(stage.dtype)
    row = int(stage.axes[-1].extent.value) * element
    if hardware.kind != "cpu" or row % LINE or rows_held(row * rows_apart(draft, name), hardware) >= ROWS:
        return draft
    return draft.apply(Relayout(name, tuple(range(len(stage.axes))), LINE // element))


def rows_held(apart: int, hardware: Hardware) -> int:
    """Of how many rows that begin `apart` bytes from each other the first cache holds a line each."""
    way = hardware.l1_bytes // hardware.ways[0]
    return way // math.gcd(apart, way) * hardware.ways[0]


def rows_apart(draft: Draft, name: str) -> int:
    """Rows from one that is read of a stage to that which is read for the next result: the stride of a window."""
    steps = []
    for consumer in draft.state.consumers(name):
        first = {axis.name: 0 for axis in (*consumer.axes, *consumer.reduce_axes)}
        for *_, row, _ in reads_of(draft, consumer, name):
            for axis in consumer.axes:
                step = substitute(row, {**first, axis.name: 1}) - substitute(row, first)
                steps.append(abs(int(step.value)) if step.is_const else 1)
    return min((step for step in steps if step), default=1)
