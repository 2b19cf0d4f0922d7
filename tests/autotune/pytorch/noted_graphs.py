"""Graphs that the backend of PyTorch compiles to kernels, noted as they come."""

from __future__ import annotations

from typing import Any

import pytest


def noted_graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Graphs that are compiled for one shape from here on, in order."""
    from autotune.graph.ir import Graph
    from autotune.pytorch import backend

    found: list[Any] = []
    real = backend.compile_graph

    def note_graph(graph: Any, *arguments: Any) -> Any:
        if isinstance(graph, Graph):
            found.append(graph)
        return real(graph, *arguments)

    monkeypatch.setattr(backend, "compile_graph", note_graph)
    return found
