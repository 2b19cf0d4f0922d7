"""Names of loops and buffers as identifiers of C."""

from __future__ import annotations

from targets.c.helpers import HELPERS
from targets.cstyle.spelling import Identifiers

_CALLED = "main memcpy workspace linux unix expf exp2f logf expm1f log1pf sinf cosf fmodf tanhf erff sqrtf fabsf floorf"
_CALLED += " rintf NAN INFINITY"
_LIBM = """
acos asin atan atan2 cbrt ceil cos cosh div erf erfc exp exp2 expm1 fabs fdim floor fma fmax fmin fmod frexp gamma hypot
ilogb index j0 j1 jn ldexp lgamma log log10 log1p log2 logb modf nan pow remainder rint round scalbn signgam sin sinh
sqrt tan tanh tgamma trunc y0 y1 yn
"""


class Names(Identifiers):
    """Identifiers of a program that this target writes, apart from what its text calls."""

    RESERVED = Identifiers.RESERVED | {*_CALLED.split(), *_LIBM.split(), *HELPERS}
