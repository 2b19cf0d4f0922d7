"""Decisions of passes by sizes of values, shared by graphs of one network at several sizes.

A pass may fold a constant, fuse or copy a value because it is small or large enough. The graphs of a network of open
sizes must be alike at all sizes: there, the first decision holds for all later graphs.

    decisions = Decisions()
    with decisions.hold():
        graphs = [made_at(size) for size in (512, 1, 64)]  # decided as at 512
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from search_space.former_names import former_attributes


class Decisions:
    """A store of decisions by their kind and value."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str], bool] = {}

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Makes `decide` use these decisions within the context."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def of(self, what: str, name: str, now: bool) -> bool:
        """Returns an earlier decision; without one, records and returns `now`."""
        return self._answers.setdefault((what, name), now)


_CURRENT: ContextVar[Decisions | None] = ContextVar("decisions", default=None)


def decide(what: str, name: str, now: bool) -> bool:
    """Decides whether to treat a value in some way.

    Args:
        what: kind of the decision.
        name: name of the value.
        now: decision that the value's size suggests.
    """
    held = _CURRENT.get()
    return now if held is None else held.of(what, name, now)


if not TYPE_CHECKING:
    __getattr__ = former_attributes(__name__, {"decided": "decide"})
