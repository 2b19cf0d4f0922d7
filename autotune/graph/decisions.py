"""What passes decide by how large values are, taken once for a graph that is made at several sizes.

A pass may fold a constant, fuse or copy something because it is small or large enough. Of a network of open sizes the
graphs at all sizes have to be alike: there, what was decided first holds for all that are made after it.

    decisions = Decisions()
    with decisions.hold():
        graphs = [made_at(size) for size in (512, 1, 64)]  # decided as at 512
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Decisions:
    """Decisions by what they are about."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], bool] = {}

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Has `decided` go by these."""
        token = _HELD.set(self)
        try:
            yield
        finally:
            _HELD.reset(token)

    def of(self, what: str, name: str, now: bool) -> bool:
        """What was decided before, or `now`, which holds from here on."""
        return self._found.setdefault((what, name), now)


_HELD: ContextVar[Decisions | None] = ContextVar("decisions", default=None)


def decided(what: str, name: str, now: bool) -> bool:
    """Whether to do something to a value.

    Args:
        what: kind of the decision.
        name: of the value.
        now: what its size speaks for.
    """
    held = _HELD.get()
    return now if held is None else held.of(what, name, now)
