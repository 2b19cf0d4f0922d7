"""Names of loops and buffers as identifiers of C."""

from __future__ import annotations

from targets.c.helpers import HELPERS
from targets.cstyle.spelling import Identifiers

_CALLED = "workspace linux unix div gamma index NAN INFINITY"


class Names(Identifiers):
    """Identifiers of a program that this target writes; they differ from the functions that its text calls."""

    RESERVED = Identifiers.RESERVED | {*_CALLED.split(), *HELPERS}
