"""Errors of building a graph and reading a model."""

from __future__ import annotations


class GraphError(ValueError):
    """A graph that cannot be built; the message has the node, the rule and the value."""


class ModelError(ValueError):
    """A model that cannot be read, or a layer in it that cannot be tuned."""
