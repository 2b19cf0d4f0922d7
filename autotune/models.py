"""Cost models of a run, by name and options."""

from __future__ import annotations

from costmodel.models.registry import make as make_model

__all__ = ["make_model"]
