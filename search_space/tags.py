"""Tags of computations: what a definition tells schedules about a stage."""

from __future__ import annotations

CONSTANT = "constant"
"""Computed from constants alone: done once, before the first call."""
TRANSFORM = "transform"
"""Part of a transformed product: of element-wise form, but read so often that it is kept, not inlined."""
