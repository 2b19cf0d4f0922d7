"""The right factor of a product, where it is computed: a tile of its columns at a time, which stays in cache."""

from __future__ import annotations

from math import prod

from search_space.hardware import Hardware
from search_space.schedule.builder import Loop
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.tags import Tag

FEWEST_ROWS = 16
"""Fewest rows of a product whose right factor is worth writing out; no sketch has a panel for fewer."""


class PanelsOfColumns(SketchRule):
    """Stages tagged `panel`: in front of the loop over tiles of rows, in vectors along the columns."""

    name = "panels_of_columns"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return stage.tag == Tag.PANEL and bool(self.list_anchors(draft, stage))

    def list_anchors(self, draft: Draft, stage: Stage) -> tuple[tuple[str, Loop], ...]:
        """Returns the product's loops at which it may be computed: that over tiles of columns if rows are inside it.

        Otherwise it is the parallel loop, whose columns are several tiles, so that rows of the panel lie further apart.
        """
        (consumer,) = draft.state.consumers(stage.name)
        known = draft.anchors.get(consumer.name, ())
        within = known[1:] if known and known[-1][1].startswith(draft.stage(known[-1][0]).axes[-1].name + ".") else ()
        return within or known[:1]

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        (consumer,) = draft.state.consumers(stage.name)
        if prod(int(axis.extent.value) for axis in consumer.axes[:-1]) < FEWEST_ROWS:
            return []
        name, (*_, last) = stage.name, stage.spatial
        *outer, numbers = stage.spatial[:-1]
        drafts = []
        for target, loop in self.list_anchors(draft, stage):
            tile = draft.compute_at(name, target, loop)
            tile, (vectors, lane) = tile.split(name, last, (hardware.float_lanes,), "guard")
            tile = tile.reorder(name, *outer, vectors, numbers, lane)
            tile = tile.unroll(name, numbers) if len(outer) > 1 else tile
            drafts.append(tile.vectorize(name, lane).variant(f"panel_at_{loop}").finish(name))
        return drafts
