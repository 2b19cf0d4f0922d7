"""Tags of computations: hints of a definition on how to schedule a stage."""

from __future__ import annotations

from enum import StrEnum

ROUNDING = ("winograd2_dot", "winograd4_dot")
"""Algorithms that round the factors they multiply: their outputs may be further from the reference than usual."""


class Tag(StrEnum):
    """The role of a stage for the rules that schedule it; plain data hold its text."""

    NONE = ""
    PAD = "pad"
    """Pads or gathers: a schedule chooses where the copy is made."""
    CONSTANT = "constant"
    """Computed from constants alone: done once, before the first call."""
    LIBRARY = "library"
    """A product that a library is to compute."""
    TRANSFORM = "transform"
    """Part of a transformed product: of element-wise form, but read so often that it is kept, not inlined."""
    FILTERS = "filters"
    """The transform of weights that are no constants, stored before the products that read it."""
    PAIRS = "pairs"
    """A sum of an even number of products, for instructions that add up two at once; useless without such ones."""
    WORDS = "words"
    """A copy whose neighbours come from several rows, for instructions that add up four products in a lane."""
    SLICES = "slices"
    """A conversion of the few rows of a product's left factor, computed before it and read by each of its columns."""
    PANEL = "panel"
    """The right factor of a product of many rows, computed for the columns of a tile and read by all of its rows."""
    SPARSE = "sparse"
    """A sum of products over the blocks of a constant that are not zero, whose positions are read from another."""

    @classmethod
    def _missing_(cls, value: object) -> Tag:
        known = ", ".join(tag for tag in cls if tag)
        raise ValueError(f"`tag` must be one of {known}, but got tag={value!r}")
