"""Which ONNX operators are imported, and by which function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.graph.importer.call import Call
from autotune.graph.ir import Array

Importer = Callable[[Call], str | Array | Sequence[str | Array | None]]
"""Adds the nodes of a call; the value of its output, or of each of its outputs.

An array stands for an output that is a constant after all, such as an empty tensor; None for one that is not available.
"""

IMPORTERS: dict[str, Importer] = {}
"""ONNX operator (of the default domain) → what imports it."""


def imports(*names: str) -> Callable[[Importer], Importer]:
    """Registers a function for some operators.

    Raises:
        ValueError: a name is taken.
    """

    def register(function: Importer) -> Importer:
        for name in names:
            if name in IMPORTERS:
                raise ValueError(f"`name` must be new, but got name={name!r}")
            IMPORTERS[name] = function
        return function

    return register


def supported() -> list[str]:
    """Names of the operators that are imported, sorted. Any other that reads constants only is folded."""
    return sorted(IMPORTERS)
