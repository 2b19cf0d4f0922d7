"""What reading a model raises."""

from __future__ import annotations


class ModelError(ValueError):
    """A model that cannot be read, or a layer in it that cannot be tuned."""
