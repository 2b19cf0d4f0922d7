"""Exceptions that end the check of a case that is not right."""

from __future__ import annotations


class Wrong(AssertionError):
    """A program was refused that must not be, or computed something else."""


class Refusal(Exception):
    """A model that is not supported, said in a sentence; or whose numbers nobody can compare."""
