"""Errors of transfer."""

from __future__ import annotations


class TransferError(ValueError):
    """A source or a method that cannot be used; one sentence says why."""
