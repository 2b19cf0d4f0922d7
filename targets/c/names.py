"""Names of loops and buffers as identifiers of C."""

from __future__ import annotations

from targets.c.helpers import HELPERS
from targets.cstyle.spelling import Identifiers

_CALLED_NAMES = "workspace linux unix div gamma index NAN INFINITY"


class Names(Identifiers):
    """Identifiers of a program that this target writes; they differ from the functions that its text calls."""

    RESERVED_NAMES = Identifiers.RESERVED_NAMES | {*_CALLED_NAMES.split(), *HELPERS}
