"""Names of loops and buffers as identifiers of C."""

from __future__ import annotations

import re

from targets.c.helpers import HELPERS

_KEYWORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
"""
_CALLED = "main memcpy workspace expf logf tanhf erff sqrtf fabsf floorf rintf NAN INFINITY"


def identifier(name: str) -> str:
    """A name with what no identifier has replaced."""
    found = re.sub(r"\W", "_", name, flags=re.ASCII)
    return found if re.match(r"[A-Za-z]", found) else f"v{found}"


class Names:
    """Gives every name of a program an identifier of its own, the same each time.

    Args:
        taken: identifiers that are somebody else's.
    """

    def __init__(self, *taken: str) -> None:
        self._given: dict[str, str] = {}
        self._taken = {*_KEYWORDS.split(), *_CALLED.split(), *HELPERS, *taken}

    def __call__(self, name: str) -> str:
        if name not in self._given:
            self._given[name] = self.fresh(identifier(name))
        return self._given[name]

    def fresh(self, wanted: str) -> str:
        """An identifier that nobody has, like `wanted`."""
        found, number = wanted, 1
        while found in self._taken or re.match(r"u?int\d+_|U?INT\d+_|_", found):
            number += 1
            found = f"{wanted}_{number}" if not found.startswith("_") else f"v{found}"
        self._taken.add(found)
        return found
