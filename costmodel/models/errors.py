"""Errors of cost models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_space.former_names import former_attributes


class CostModelError(ValueError):
    """An unknown model or option, a file of another kind, or a lack of data to learn from; one sentence says which."""


if not TYPE_CHECKING:
    __getattr__ = former_attributes(__name__, {"ModelError": "CostModelError"})
