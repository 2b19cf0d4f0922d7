"""Names of loops and buffers as identifiers of CUDA C++."""

from __future__ import annotations

import re

from targets.cstyle.spelling import Identifiers
from targets.cuda.prelude import RESERVED_NAMES


class Names(Identifiers):
    """Identifiers of a kernel; they differ from the functions that its text calls."""

    RESERVED_NAMES = RESERVED_NAMES
    SECOND = 1

    def spell(self, name: str) -> str:
        return re.sub(r"^(?=\d)|\W", "_", name)
