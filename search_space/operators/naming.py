"""Axis names for definitions over any number of axes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any


def over(names: Sequence[str], function: Callable[..., Any]) -> Callable[..., Any]:
    """Names the axes of a variadic `function` of indices, as `te.compute` takes it."""

    def body(*index: Any) -> Any:
        return function(*index)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    body.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
    return body
