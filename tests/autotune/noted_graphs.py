"""Graphs that the backend of PyTorch compiles to kernels, noted as they come."""

from __future__ import annotations

from typing import Any

import pytest


def noted_graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Graphs that are compiled from here on, in order."""
    from autotune.pytorch import backend

    found: list[Any] = []
    real = backend.compile_graph

    def noted(graph: Any, options: Any) -> Any:
        found.append(graph)
        return real(graph, options)

    monkeypatch.setattr(backend, "compile_graph", noted)
    return found
