"""Spelling of operators, math functions of float32 and names that C99 and CUDA C++ have in common."""

from __future__ import annotations

import re
from itertools import chain, count
from typing import ClassVar

SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "and": "&&",
    "or": "||",
}
FUNCTIONS = {
    "exp": "expf",
    "exp2": "exp2f",
    "log": "logf",
    "expm1": "expm1f",
    "log1p": "log1pf",
    "sin": "sinf",
    "cos": "cosf",
    "tanh": "tanhf",
    "erf": "erff",
    "sqrt": "sqrtf",
    "abs": "fabsf",
    "floor": "floorf",
    "rint": "rintf",
    "tfloat32": "tfloat32",
}
"""Functions of libm; `tfloat32` is a helper of each target, which adds the functions that it spells differently."""

KEYWORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
"""

_MATH = """
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax fmin
fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint nextafter
nexttoward pow remainder remquo rint round scalbln scalbn sin sinh sqrt tan tanh tgamma trunc
"""
_OTHERS = """
asctime clock ctime difftime gmtime j0 j1 jn localtime main memchr memcmp memcpy memmove memset mktime signgam strcat
strchr strcmp strcoll strcpy strcspn strerror strftime strlen strncat strncmp strncpy strpbrk strrchr strspn strstr
strtok strxfrm time y0 y1 yn
"""
_MATH_NAMES = (f"{name}{kind}" for name in _MATH.split() for kind in ("", "f", "l"))
RESERVED_NAMES = frozenset({*KEYWORDS.split(), *_OTHERS.split(), *_MATH_NAMES})
"""Names that no function of a text may have: keywords, and the declarations of `math.h`, `string.h` and `time.h`."""

HEADER_NAMES = """
network arguments workspace pthread_mutex_lock pthread_mutex_unlock pthread_mutex_t aligned_alloc free size_t linux unix
alignas alignof and and_eq asm bitand bitor bool catch class compl concept const_cast constexpr decltype delete
dynamic_cast explicit export false friend mutable namespace new noexcept not not_eq nullptr operator or or_eq private
protected public reinterpret_cast requires static_assert static_cast template this thread_local throw true try typeid
typename using virtual wchar_t xor xor_eq NULL
"""
"""Names that no argument in a header of a network may have: those that its functions read, and keywords of C++."""


def identifier(name: str) -> str:
    """Replaces the characters that no identifier may have."""
    found = re.sub(r"\W", "_", name, flags=re.ASCII)
    own = re.match(r"[A-Za-z]", found) and not re.match(r"u?int\d*_|U?INT\d*_|AUTOTUNE|autotune", found)
    return found if own else f"v{found}"


class Identifiers:
    """A map from the names of a program to identifiers, the same in every run.

    Args:
        more_reserved: identifiers that are in use elsewhere, besides `RESERVED_NAMES`.

    Attributes:
        RESERVED_NAMES: names that are no identifiers in the language.
        SECOND: suffix of the second name that maps to an identifier.
    """

    RESERVED_NAMES: ClassVar[frozenset[str]] = RESERVED_NAMES
    SECOND: ClassVar[int] = 2

    def __init__(self, *more_reserved: str) -> None:
        self._identifiers: dict[str, str] = {}
        self._reserved_names = {*self.RESERVED_NAMES, *more_reserved}

    def __call__(self, name: str) -> str:
        if name not in self._identifiers:
            self._identifiers[name] = self.fresh(self.spell(name))
        return self._identifiers[name]

    def __len__(self) -> int:
        return len(self._identifiers)

    def spell(self, name: str) -> str:
        """Returns the identifier that suits a name best."""
        return identifier(name)

    def fresh(self, base: str) -> str:
        """Returns an unused identifier like `base`."""
        candidates = chain([base], (f"{base}_{number}" for number in count(self.SECOND)))
        found = next(one for one in candidates if one not in self._reserved_names)
        self._reserved_names.add(found)
        return found
