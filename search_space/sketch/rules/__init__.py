"""Sketch rules in the order they are tried. A new rule is one file and one line here (or `register_rule`)."""

from __future__ import annotations

from search_space.sketch.base import SketchRule
from search_space.sketch.rules.chained import ChainedProducts
from search_space.sketch.rules.elementwise import Elementwise
from search_space.sketch.rules.explicit_memory import ExplicitMemory
from search_space.sketch.rules.gpu_elementwise import GpuElementwise
from search_space.sketch.rules.gpu_inline import GpuInline, GpuRefusal
from search_space.sketch.rules.gpu_rowparts import GpuLongRows, GpuRowParts
from search_space.sketch.rules.gpu_rowwise import GpuRowWise
from search_space.sketch.rules.gpu_tensor import GpuTensorCores
from search_space.sketch.rules.gpu_tiling import GpuTiling
from search_space.sketch.rules.gpu_transposed import GpuTransposed
from search_space.sketch.rules.gpu_warpgroup import GpuWarpgroups
from search_space.sketch.rules.inline import AlwaysInline
from search_space.sketch.rules.library import LibraryCall
from search_space.sketch.rules.pad import PadHandling
from search_space.sketch.rules.rowwise import RowWise
from search_space.sketch.rules.tiling import MultiLevelTiling
from search_space.sketch.rules.transformed import TransformedProducts

RULES: list[SketchRule] = [
    GpuRefusal(),
    GpuInline(),
    AlwaysInline(),
    GpuLongRows(),
    GpuRowWise(),
    GpuWarpgroups(),
    GpuTensorCores(),
    GpuTiling(),
    GpuRowParts(),
    GpuTransposed(),
    GpuElementwise(),
    PadHandling(),
    ExplicitMemory(),
    LibraryCall(),
    RowWise(),
    TransformedProducts(),
    ChainedProducts(),
    MultiLevelTiling(),
    Elementwise(),
]


def register_rule(rule: SketchRule, before: str | None = None) -> None:
    """Adds a rule of one's own, in front of the rule named `before` or first of all.

    Raises:
        ValueError: no rule has that name.
    """
    names = [r.name for r in RULES]
    if before is not None and before not in names:
        raise ValueError(f"`before` must be one of {', '.join(names)}, but got before={before!r}")
    RULES.insert(0 if before is None else names.index(before), rule)


__all__ = ["RULES", "register_rule"]
