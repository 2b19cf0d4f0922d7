"""What making a graph and reading a model raise."""

from __future__ import annotations


class GraphError(ValueError):
    """A graph that cannot be made; the message names the node, states the rule and the value."""


class ModelError(ValueError):
    """A model that cannot be read, or a layer in it that cannot be tuned."""
