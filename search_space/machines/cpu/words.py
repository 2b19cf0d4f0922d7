"""Words of bytes from several rows, side by side: copies that instructions with four products a lane read."""

from __future__ import annotations

from dataclasses import replace

from search_space.hardware import Hardware
from search_space.machines.cpu.tiling import in_vectors
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.tags import Tag


class WordsOfRows(SketchRule):
    """Stages tagged `words` are computed for the tiles of a parallel iteration that read them.

    Vectors are full registers of words, so that each takes a load of every row and equally many permutations.
    """

    name = "words_of_rows"

    def matches(self, draft: Draft, stage: Stage, hardware: Hardware) -> bool:
        return stage.tag == Tag.WORDS and stage.name not in draft.state.outputs

    def apply(self, draft: Draft, stage: Stage, hardware: Hardware) -> list[Draft]:
        name, lanes = stage.name, hardware.vector_bytes
        (consumer,) = draft.state.consumers(name)
        copy = in_vectors(draft, name, lanes)
        # In front of all tiles that read them. The input's padding may be computed there, too: for small images a
        # separate loop costs more. A sum that is not tiled has no use for them.
        first = draft.anchors.get(consumer.name, ())[:1]
        return [
            replace(tile, anchors={**tile.anchors, name: first}).variant("words_at_tile").finish(name)
            for tile in (copy.compute_at(name, *at) for at in first)
        ]
