"""Errors of datasets."""

from __future__ import annotations


class DatasetError(ValueError):
    """A dataset that cannot be read, made or split as asked; one sentence says why."""
