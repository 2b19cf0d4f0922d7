"""Errors of cost models."""

from __future__ import annotations


class ModelError(ValueError):
    """An unknown model or option, a file of another kind, or a lack of data to learn from; one sentence says which."""
