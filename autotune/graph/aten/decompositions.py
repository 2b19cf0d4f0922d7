"""Which of ATen's operators are taken apart before they are converted: those without a converter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._decomp import core_aten_decompositions
from torch._ops import OpOverload

from autotune.graph.aten.registry import CONVERTERS, name_of


def decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Core ATen's decompositions, but for operators that have a converter."""
    table: Any = core_aten_decompositions()
    return {op: how for op, how in table.items() if name_of(op) not in CONVERTERS}
