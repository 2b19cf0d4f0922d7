"""How languages like C spell operators and math functions of float32: what C99 and CUDA C++ have in common."""

from __future__ import annotations

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
"""Of libm; `tfloat32` is a helper of each target, which adds what it names otherwise."""
