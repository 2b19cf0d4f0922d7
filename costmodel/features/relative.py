"""Features of a whole program that describe how it computes rather than how much: for models of many tasks.

The amounts of work of two programs of one task are nearly equal, and those of two tasks are not. A model that is
trained on amounts learns tasks by heart. The remaining features are lengths of loops, sizes of tiles and working sets,
and each cost as a share of the estimated time. Means over statements blur the most expensive one, so it is also
described separately, with its costs per iteration.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.features.groups import NAMES
from costmodel.features.program import PROGRAM_NAMES, describe_programs, program_features

_PROGRAM_NANOSECONDS = PROGRAM_NAMES.index("mean.program.nanoseconds")
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
_UNCHANGED_COLUMNS = [
    i
    for i, name in enumerate(PROGRAM_NAMES)
    if name == "statements" or name.startswith("relative.") or (not name.startswith("total.") and name.endswith(_ENDS))
]
_SHARES = [PROGRAM_NAMES.index(f"total.roofline.{cost}") for cost in _COSTS]

_SHARE, _ITERATIONS = NAMES.index("roofline.share"), NAMES.index("iterations")
_HEAVIEST = [i for i, name in enumerate(NAMES) if name.endswith((*_ENDS, ".registers", ".read", ".write"))]
_COST_COLUMNS = [NAMES.index(f"roofline.{cost}") for cost in _COSTS]

RELATIVE_NAMES: tuple[str, ...] = (
    *(PROGRAM_NAMES[i] for i in _UNCHANGED_COLUMNS),
    *(f"share.roofline.{cost}" for cost in _COSTS),
    *(f"heaviest.{NAMES[i]}" for i in _HEAVIEST),
    *(f"heaviest.roofline.{cost}.an_iteration" for cost in _COSTS),
)


def relative_features(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Computes features of programs: (candidates, statements, features) → float32 (len(RELATIVE_NAMES), candidates).

    Features of knobs, if there are any, follow at the end.
    """
    found = program_features(features)
    knobs = found[len(PROGRAM_NAMES) :]
    return np.concatenate(
        [found[_UNCHANGED_COLUMNS], found[_SHARES] - found[_PROGRAM_NANOSECONDS], *_of_heaviest(features), knobs]
    )


def relative_rows(features: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Computes features of programs with different numbers of statements: float32 (programs, len(RELATIVE_NAMES))."""
    return describe_programs(features, relative_features, len(RELATIVE_NAMES))


def _of_heaviest(features: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Describes the statement with the greatest share, the first of equal ones, and its costs per iteration."""
    by_statement = features.transpose(1, 2, 0)  # each (features, candidates), candidates side by side in memory
    first, *others = by_statement
    how, spent = first[_HEAVIEST], first[_COST_COLUMNS] - first[_ITERATIONS]
    share = first[_SHARE].copy()
    for of in others:
        heavier = of[_SHARE] > share
        np.copyto(how, of[_HEAVIEST], where=heavier)
        np.copyto(spent, of[_COST_COLUMNS] - of[_ITERATIONS], where=heavier)
        np.copyto(share, of[_SHARE], where=heavier)
    return how, spent
