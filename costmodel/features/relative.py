"""Features of a whole program that say how it computes rather than how much: for models of many tasks.

The amounts of work of two programs of one task are nearly the same, and those of two tasks are not: a model that is
trained on amounts learns tasks by heart. What is left are lengths of loops, sizes of tiles and working sets, and each
cost as a share of the estimated time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from costmodel.features.program import PROGRAM_NAMES, program_features

_WHOLE = PROGRAM_NAMES.index("mean.program.nanoseconds")
_ENDS = (
    *(f"roofline.{x}" for x in ("accumulators", "registers", "body", "loads", "balance", "loads_an_instruction")),
    *("roofline.share", "library.product", "unroll.product", "vectorize.product", "reducing"),
    *(f".{x}" for x in ("extent", "stride", "length", "reused", "reduced", "reuse", "distance_bytes", "working_set")),
)
_COSTS = (
    "arithmetic",
    "loading",
    "overhead",
    "instructions",
    *(f"{x}{i}" for x in ("traffic", "misses") for i in "123"),
)
_KEPT = [
    i
    for i, name in enumerate(PROGRAM_NAMES)
    if name == "statements" or name.startswith("relative.") or (not name.startswith("total.") and name.endswith(_ENDS))
]
_SHARES = [PROGRAM_NAMES.index(f"total.roofline.{cost}") for cost in _COSTS]

RELATIVE_NAMES: tuple[str, ...] = (
    *(PROGRAM_NAMES[i] for i in _KEPT),
    *(f"share.roofline.{cost}" for cost in _COSTS),
)


def relative_features(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Features of programs: (candidates, statements, features) → float32 (len(RELATIVE_NAMES), candidates)."""
    return _relative(program_features(features))


def relative_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same of `program.program_rows`: (programs, len(PROGRAM_NAMES)) → float32 (programs, len(RELATIVE_NAMES))."""
    return np.ascontiguousarray(_relative(rows.T).T)


def _relative(found: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.concatenate([found[_KEPT], found[_SHARES] - found[_WHOLE], found[len(PROGRAM_NAMES) :]])
