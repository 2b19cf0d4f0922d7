"""Pad handling: the padded input is written out whole, computed a tile at a time, or read through a condition.

What is written out of an input that lies in another order, as that of an image which comes channels-first, keeps that
order: rows are copied as they are, and single elements may as well be read from there.
"""

from __future__ import annotations

from collections.abc import Callable

from search_space.hardware import Hardware
from search_space.ir.expr import variables, walk
from search_space.lower.inline import expanded
from search_space.machines.shared.lanes import copied_lanes, lanes_of
from search_space.schedule.builder import Loop
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.tags import Tag


class PadHandling(SketchRule):
    """Variants for a stage tagged `pad`, once its consumer is tiled.

    Args:
        spread: what gives rows that are written out other places in memory, if anything does.
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
        root = self.spread(self.written(draft, stage, hardware), stage.name, hardware)
        out = [root.variant("pad_root").finish(stage.name)]
        whole = not any(self.reads_vectors(c, stage) for c in consumers)  # a tile of it has rows of full length
        for target, leaf in anchors:
            attached = draft.compute_at(stage.name, target, leaf)
            tile, _ = self.vectors(attached, stage, hardware)
            tile = self.spread(tile, stage.name, hardware) if whole else tile
            out.append(tile.variant(f"pad_at_{leaf}").finish(stage.name))
        if all(self.reads_vectors(c, stage) and c.tag != Tag.WORDS for c in consumers):
            out.append(draft.compute_inline(stage.name).variant("pad_inline").finish(stage.name))
        return out

    def in_order(self, draft: Draft, stage: Stage) -> Draft:
        """The draft with the stage stored in the order of the one input that it copies, if its readers allow that."""
        readers = draft.state.consumers(stage.name)
        if any(r.tag == Tag.LIBRARY or r.tensorized or self.reads_vectors(r, stage) for r in readers):
            return draft
        loads = {n for n in walk(expanded(stage, draft.state)) if n.op == "load"}
        if len(loads) != 1:
            return draft
        indices = [variables(index) for index in loads.pop().args[1:]]
        places = {name: place for place, names in enumerate(indices) for name in names}
        axes = [a.name for a in stage.axes if a.extent.value > 1]
        if not set(axes) <= set(places) or any(len(names) > 1 for names in indices):
            return draft
        if [places[a] for a in axes] == sorted(places[a] for a in axes):
            return draft
        order = sorted(range(len(stage.axes)), key=lambda d: (places.get(stage.axes[d].name, -1), d))
        return draft.relayout(stage.name, order).reorder(stage.name, *(stage.spatial[d] for d in order))

    def reads_vectors(self, consumer: Stage, stage: Stage) -> bool:
        """Whether the padded input is read in vectors, so that one condition serves all lanes."""
        reduced = {a.name for a in consumer.reduce_axes}
        loads = [n for n in walk(consumer.body) if n.op == "load" and n.args[0] == stage.name]
        return not any(variables(n.args[-1]) & reduced for n in loads)

    def written(self, draft: Draft, stage: Stage, hardware: Hardware) -> Draft:
        """At the root: rows in parallel."""
        along = self.along(stage, hardware)
        outer = [a.name for a in stage.axes if a.extent.value > 1 and a.name not in along]
        rows = outer[:-1] or outer
        draft, vectors = self.vectors(draft, stage, hardware)
        if not rows:
            return draft.parallel(stage.name, vectors)
        names = stage.spatial  # those of one element in between belong to them
        draft, loop = draft.fuse(stage.name, names[names.index(rows[0]) : names.index(rows[-1]) + 1])
        return draft.parallel(stage.name, loop)

    def along(self, stage: Stage, hardware: Hardware) -> tuple[str, ...]:
        """The axes vectors run along: the last one, with its neighbour where it is short."""
        short = stage.axes[-1].extent.value < hardware.float_lanes and len(stage.axes) > 1
        return stage.spatial[-2 if short else -1 :]

    def vectors(self, draft: Draft, stage: Stage, hardware: Hardware) -> tuple[Draft, Loop]:
        """Vectors along the last axis, and the loop over them; a short axis is fused with its neighbour, as both
        buffers are contiguous there."""
        along = self.along(stage, hardware)
        wide = copied_lanes(draft, stage, hardware) if len(along) == 1 else 0
        lanes = wide or (lanes_of(draft, stage, hardware) if len(along) == 1 else hardware.float_lanes)
        draft, row = draft.fuse(stage.name, along)
        tail = "clamp" if wide else "guard"  # a mask of so many lanes costs more than a copy of some once more
        tail = "exact" if len(along) == 1 and stage.axes[-1].extent.value % lanes == 0 else tail
        draft, (vectors, lane) = draft.split(stage.name, row, (lanes,), tail)
        return draft.vectorize(stage.name, lane), vectors
