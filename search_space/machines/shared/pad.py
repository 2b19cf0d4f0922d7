"""Pad handling: the padded input is stored whole, computed a tile at a time, or read through a condition.

A copy of an input with another order of dimensions, such as a channels-first image, keeps that order: rows are copied
as they are, and reads of single elements do not need another order.
"""

from __future__ import annotations

from collections.abc import Callable

from search_space.hardware import Hardware
from search_space.ir.expr import variables, walk
from search_space.lower.inline import expand_body
from search_space.machines.shared.lanes import copied_lanes, select_lanes
from search_space.schedule.builder import Loop
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.tags import Tag


class PadHandling(SketchRule):
    """Variants for a stage tagged `pad`, once its consumer is tiled.

    Args:
        spread: function that may change the distance of stored rows in memory.
    """

    name = "pad"

    def __init__(self, spread: Callable[[Draft, str, Hardware], Draft] | None = None) -> None:
        self.spread = spread or (lambda draft, name, hardware: draft)

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return (stage.tag == Tag.PAD or stage.name in draft.copies) and stage.name not in draft.state.outputs

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        consumers = draft.state.consumers(stage.name)
        if all(c.tag == Tag.PAD for c in consumers):  # one copy is enough
            return [draft.compute_inline(stage.name).finish(stage.name)]
        draft = self.in_order(draft, stage)
        stage = draft.stage(stage.name)
        anchors = draft.anchors.get(consumers[0].name, ()) if len(consumers) == 1 else ()
        root = self.spread(self.write_at_root(draft, stage, hardware), stage.name, hardware)
        out = [root.variant("pad_root").finish(stage.name)]
        full_rows = not any(self.reads_vectors(c, stage) for c in consumers)  # a tile of it has rows of full length
        for target, leaf in anchors:
            attached = draft.compute_at(stage.name, target, leaf)
            tile, _ = self.vectors(attached, stage, hardware)
            tile = self.spread(tile, stage.name, hardware) if full_rows else tile
            out.append(tile.variant(f"pad_at_{leaf}").finish(stage.name))
        if all(self.reads_vectors(c, stage) and c.tag != Tag.WORDS for c in consumers):
            out.append(draft.compute_inline(stage.name).variant("pad_inline").finish(stage.name))
        return out

    def in_order(self, draft: Draft, stage: Stage) -> Draft:
        """Stores the stage in the order of the one input that it copies, if its readers allow that."""
        readers = draft.state.consumers(stage.name)
        if any(r.tag == Tag.LIBRARY or r.tensorization or self.reads_vectors(r, stage) for r in readers):
            return draft
        loads = {n for n in walk(expand_body(stage, draft.state)) if n.op == "load"}
        if len(loads) != 1:
            return draft
        indices = [variables(index) for index in loads.pop().args[1:]]
        dims = {name: place for place, names in enumerate(indices) for name in names}
        axes = [a.name for a in stage.axes if a.extent.value > 1]
        if not set(axes) <= set(dims) or any(len(names) > 1 for names in indices):
            return draft
        if [dims[a] for a in axes] == sorted(dims[a] for a in axes):
            return draft
        order = sorted(range(len(stage.axes)), key=lambda d: (dims.get(stage.axes[d].name, -1), d))
        return draft.relayout(stage.name, order).reorder(stage.name, *(stage.spatial[d] for d in order))

    def reads_vectors(self, consumer: Stage, stage: Stage) -> bool:
        """Tells whether the padded input is read in vectors, so that one condition serves all lanes."""
        reduced = {a.name for a in consumer.reduce_axes}
        loads = [n for n in walk(consumer.body) if n.op == "load" and n.args[0] == stage.name]
        return not any(variables(n.args[-1]) & reduced for n in loads)

    def write_at_root(self, draft: Draft, stage: Stage, hardware: Hardware) -> Draft:
        """Stores the stage at the root: rows in parallel."""
        along = self.along(stage, hardware)
        outer = [a.name for a in stage.axes if a.extent.value > 1 and a.name not in along]
        rows = outer[:-1] or outer
        draft, vectors = self.vectors(draft, stage, hardware)
        if not rows:
            return draft.parallel(stage.name, vectors)
        names = stage.spatial  # axes of extent 1 in between are fused, too
        draft, loop = draft.fuse(stage.name, names[names.index(rows[0]) : names.index(rows[-1]) + 1])
        return draft.parallel(stage.name, loop)

    def along(self, stage: Stage, hardware: Hardware) -> tuple[str, ...]:
        """Returns the axes that vectors run along: the last one, and its neighbour if it is short."""
        short = stage.axes[-1].extent.value < hardware.float_lanes and len(stage.axes) > 1
        return stage.spatial[-2 if short else -1 :]

    def vectors(self, draft: Draft, stage: Stage, hardware: Hardware) -> tuple[Draft, Loop]:
        """Makes vectors along the last axis, and returns the loop over them.

        A short axis is fused with its neighbour, as both buffers are contiguous there.
        """
        along = self.along(stage, hardware)
        wide = copied_lanes(draft, stage, hardware) if len(along) == 1 else 0
        lanes = wide or (select_lanes(draft, stage, hardware) if len(along) == 1 else hardware.float_lanes)
        draft, row = draft.fuse(stage.name, along)
        tail = "clamp" if wide else "guard"  # a mask of so many lanes costs more than copying some elements again
        tail = "exact" if len(along) == 1 and stage.axes[-1].extent.value % lanes == 0 else tail
        draft, (vectors, lane) = draft.split(stage.name, row, (lanes,), tail)
        return draft.vectorize(stage.name, lane), vectors
