"""Rows of an intermediate array a cache line further apart, if they would compete for few sets of the first cache.

Pixels of 1,024 channels in float32 lie 4 KiB apart: in a cache of 64 sets and eight ways they all map to one set, which
holds eight of them. A tile of registers, however, reads two dozen at once, repeatedly. With one more line from pixel to
pixel, they are spread over all sets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from search_space.hardware import LINE, Hardware
from search_space.ir.expr import dtype_bytes, substitute, variables
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft
from search_space.sketch.reads import list_reads

ROWS = 28
"""Rows that the largest register tile reads at once, and again before it continues with others."""


def spread(draft: Draft, name: str, hardware: Hardware) -> Draft:
    """Puts the rows of a stage a line further apart, if too few of them fit the first cache as they are."""
    stage = draft.stage(name)
    if not crowds(draft, name, [int(axis.extent.value) for axis in stage.axes], stage.dtype, hardware):
        return draft
    return draft.relayout(name, range(len(stage.axes)), LINE // dtype_bytes(stage.dtype))


def with_copies(draft: Draft, hardware: Hardware) -> list[Draft]:
    """Lists drafts in which a crowding input is copied first; its windows overlap, so that each element is read often.

    A padded input is copied anyway, and an input that is read once would gain nothing.
    """
    out = []
    for stage in draft.state.stages:
        for source in draft.state.inputs:
            if stage.reducer is None or source.constant or not _under_windows(draft, stage, source.name):
                continue
            if crowds(draft, source.name, source.shape, source.dtype, hardware):
                done, copy = draft.cache_read(source.name, "global", stage.name)
                out.append(replace(done, copies=draft.copies | {copy}).variant("copy"))
    return out


def _under_windows(draft: Draft, stage: Stage, name: str) -> bool:
    """Tells whether neighbouring results of a stage read common rows of an input and sum along them."""
    if name not in stage.reads():
        return False
    stride, own = rows_apart(draft, name), {axis.name for axis in stage.axes}
    summed = {axis.name for axis in stage.reduce_axes}
    window = {axis.name for axis in stage.reduce_axes if int(axis.extent.value) > stride}
    reads = [index for index in list_reads(draft, stage, name) if len(index) > 1]
    return any(
        variables(row) & own and variables(row) & window and variables(last) <= summed for *_, row, last in reads
    )


def crowds(draft: Draft, name: str, shape: Sequence[int], dtype: str, hardware: Hardware) -> bool:
    """Tells whether the first cache holds too few of the rows of a stage or an input that are read together."""
    row = shape[-1] * dtype_bytes(dtype)
    # Rows that do not begin with a line each are spread by that alone.
    if len(shape) < 2 or row % LINE:
        return False
    return rows_held(row * rows_apart(draft, name), hardware) < ROWS


def rows_held(apart: int, hardware: Hardware) -> int:
    """Counts the rows, `apart` bytes from each other, of which the first cache holds a line each."""
    # Multiples of that distance visit this many sets of a way; each set holds a line of one row per way.
    way = hardware.l1_bytes // hardware.ways[0]
    return way // math.gcd(apart, way) * hardware.ways[0]


def rows_apart(draft: Draft, name: str) -> int:
    """Returns the distance in rows between the reads of neighbouring results of a stage: the stride of a window."""
    steps = []
    for consumer in draft.state.consumers(name):
        # The step of an index is taken between its first two places; strides of windows are the same everywhere.
        first = {axis.name: 0 for axis in (*consumer.axes, *consumer.reduce_axes)}
        for row in [index[-2] for index in list_reads(draft, consumer, name) if len(index) > 1]:
            for axis in consumer.axes:
                step = substitute(row, {**first, axis.name: 1}) - substitute(row, first)
                steps.append(abs(int(step.value)) if step.is_const else 1)
    return min((step for step in steps if step), default=1)
