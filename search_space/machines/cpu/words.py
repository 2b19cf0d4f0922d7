"""Words of bytes from several rows, side by side: copies that instructions with four products a lane read."""

from __future__ import annotations

from dataclasses import replace

from search_space.hardware import Hardware
from search_space.machines.cpu.tiling import in_vectors
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.tags import WORDS


class WordsOfRows(SketchRule):
    """Stages tagged `words` are written out whole, or for a tile of the one that reads them.

    Vectors are whole registers of words, so that each is a load of every row and as many permutations.
    """

    name = "words_of_rows"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return stage.tag == WORDS and stage.name not in draft.state.outputs

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        name, lanes = stage.name, hardware.vector_bytes
        (consumer,) = draft.state.consumers(name)
        made = in_vectors(draft, name, lanes)
        outer = [axis.name for axis in stage.axes[:-2] if axis.extent.value > 1]
        rows = outer[:-1] or outer
        names = made.stage(name).spatial
        whole = made
        if rows:
            whole, loop = whole.fuse(name, names[names.index(rows[0]) : names.index(rows[-1]) + 1])
            whole = whole.parallel(name, loop)
        tiles = []
        for at in draft.anchors.get(consumer.name, ()):
            tile = made.compute_at(name, *at).variant(f"words_at_{at[1]}")
            # What pads the input may be computed there, too: for small images a loop of its own costs more.
            tiles.append(replace(tile, anchors={**tile.anchors, name: (at,)}))
        return [d.finish(name) for d in (whole.variant("words_root"), *tiles)]
