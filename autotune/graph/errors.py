"""Errors of building a graph and reading a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from search_space.former_names import former_attributes


class GraphError(ValueError):
    """A graph that cannot be built; the message has the node, the rule and the value."""


class UnsupportedModelError(ValueError):
    """A model that cannot be read, or a layer in it that cannot be tuned."""


if not TYPE_CHECKING:
    __getattr__ = former_attributes(__name__, {"ModelError": "UnsupportedModelError"})
