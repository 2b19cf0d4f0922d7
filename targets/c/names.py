"""Names of loops and buffers as identifiers of C."""

from __future__ import annotations

import re

from targets.c.helpers import HELPERS

_KEYWORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
"""
_CALLED = "main memcpy workspace linux unix expf exp2f logf expm1f log1pf sinf cosf fmodf tanhf erff sqrtf fabsf floorf"
_CALLED += " rintf NAN INFINITY"
_LIBM = """
acos asin atan atan2 cbrt ceil cos cosh div erf erfc exp exp2 expm1 fabs fdim floor fma fmax fmin fmod frexp gamma hypot
ilogb index j0 j1 jn ldexp lgamma log log10 log1p log2 logb modf nan pow remainder rint round scalbn signgam sin sinh
sqrt tan tanh tgamma trunc y0 y1 yn
"""


def identifier(name: str) -> str:
    """A name with what no identifier has replaced."""
    found = re.sub(r"\W", "_", name, flags=re.ASCII)
    own = re.match(r"[A-Za-z]", found) and not re.match(r"u?int\d*_|U?INT\d*_|AUTOTUNE|autotune", found)
    return found if own else f"v{found}"


class Names:
    """Gives every name of a program an identifier of its own, the same each time.

    Args:
        taken: identifiers that are somebody else's.
    """

    def __init__(self, *taken: str) -> None:
        self._given: dict[str, str] = {}
        self._taken = {*_KEYWORDS.split(), *_CALLED.split(), *_LIBM.split(), *HELPERS, *taken}

    def __call__(self, name: str) -> str:
        if name not in self._given:
            self._given[name] = self.fresh(identifier(name))
        return self._given[name]

    def fresh(self, wanted: str) -> str:
        """An identifier that nobody has, like `wanted`."""
        found, number = wanted, 1
        while found in self._taken:
            number += 1
            found = f"{wanted}_{number}"
        self._taken.add(found)
        return found
