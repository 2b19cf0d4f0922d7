"""Names of loops and buffers as identifiers of C."""

from __future__ import annotations

from targets.c.helpers import HELPERS
from targets.c_spelling import Identifiers

_CALLED = "workspace linux unix div gamma index NAN INFINITY"


class Names(Identifiers):
    """Identifiers of a program that this target writes, apart from what its text calls.

    Args:
        taken: identifiers that are somebody else's.
    """

    def __init__(self, *taken: str) -> None:
        super().__init__(*_CALLED.split(), *HELPERS, *taken)
