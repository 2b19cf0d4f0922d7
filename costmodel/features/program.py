"""Features of a whole program, for models that score it at once: common and total quantities of its statements.

All are logarithms (base 2) or shares, like a statement's features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from costmodel.features.groups import BUFFERS, COUNTS, NAMES, OPERATIONS

PROGRAM_NANOSECONDS = "program.nanoseconds"
SUMMED_FEATURES: tuple[str, ...] = (
    *(f"operations.{kind}" for kind in OPERATIONS),
    "iterations",
    *(f"buffer{b}.{x}" for b in range(BUFFERS) for x in ("bytes", "unique", "unique_lines")),
    *(f"roofline.{x}" for x in ("instructions", "arithmetic", "loading", "overhead")),
    *(f"roofline.{x}{i}" for i in (1, 2, 3) for x in ("traffic", "misses")),
)
"""Amounts of work, which add up over statements."""

RELATIVE: tuple[str, ...] = (PROGRAM_NANOSECONDS, *(name for name in SUMMED_FEATURES if name.startswith("roofline.")))
"""Costs that are also given per operation, and so compare between tasks of any size."""

PROGRAM_NAMES: tuple[str, ...] = (
    "statements",
    *(f"mean.{name}" for name in NAMES),
    *(f"greatest.{name}" for name in NAMES if name != PROGRAM_NANOSECONDS),
    *(f"total.{name}" for name in SUMMED_FEATURES),
    "total.operations",
    *(f"relative.{name}" for name in RELATIVE),
)
_SHARE, _PROGRAM_NANOSECONDS = NAMES.index("roofline.share"), NAMES.index(PROGRAM_NANOSECONDS)
_NOT_WHOLE = [i for i, name in enumerate(NAMES) if name != PROGRAM_NANOSECONDS]
_SUMMED_COLUMNS = [NAMES.index(name) for name in SUMMED_FEATURES]
_RELATIVE = [SUMMED_FEATURES.index(name) for name in RELATIVE if name != PROGRAM_NANOSECONDS]
_OPERATIONS = slice(0, len(OPERATIONS))
_LEAST_SHARE = 1e-6  # least weight of a statement in a mean, so that the weights never add up to 0
assert set(SUMMED_FEATURES) <= set(COUNTS)


def program_features(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Computes features of programs: (candidates, statements, features) → float32 (len(PROGRAM_NAMES), candidates).

    Features of statements beyond `NAMES`, those of knobs, are equal for all statements and follow at the end. `mean`
    weighs statements by their share of the estimated time, `total` adds the amounts behind the logarithms, and
    `relative` is per operation. Every candidate's features depend on its own statements alone, to the last bit.
    """
    loops, knobs = features[:, :, : len(NAMES)], features[:, 0, len(NAMES) :].T
    by_statement = [np.ascontiguousarray(of) for of in loops.transpose(1, 2, 0)]  # each (features, candidates)
    count = len(features)
    described = np.empty((len(PROGRAM_NAMES) + len(knobs), count), np.float32)
    described[0] = np.log2(1.0 + len(by_statement))
    weight = np.full(count, np.float32(0))
    mean = np.zeros((len(NAMES), count), np.float32)
    greatest = np.full((len(NAMES), count), np.float32(-np.inf))
    total = np.zeros((len(SUMMED_FEATURES), count))
    for of in by_statement:  # one after another, so that sums do not depend on the layout
        share = np.maximum(of[_SHARE], np.float32(_LEAST_SHARE))
        weight += share
        mean += of * share
        np.maximum(greatest, of, out=greatest)
        total += np.exp2(of[_SUMMED_COLUMNS].astype(np.float64)) - 1.0
    operations = np.zeros(count)
    for amount in total[_OPERATIONS]:
        operations += amount
    logarithms, scale = np.log2(1.0 + total), np.log2(1.0 + operations)
    parts = (
        mean / weight,
        greatest[_NOT_WHOLE],
        logarithms,
        scale[None],
        greatest[_PROGRAM_NANOSECONDS][None] - scale,
        logarithms[_RELATIVE] - scale,
        knobs,
    )
    first = 1
    for part in parts:
        described[first : first + len(part)] = part
        first += len(part)
    return described


def program_rows(features: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Computes features of programs with different numbers of statements: float32 (programs, len(PROGRAM_NAMES))."""
    return describe_programs(features, program_features, len(PROGRAM_NAMES))


def describe_programs(
    features: Sequence[NDArray[np.float32]], describe: Callable[[NDArray[np.float32]], NDArray[np.float32]], width: int
) -> NDArray[np.float32]:
    """Describes programs with different numbers of statements, programs of one number together.

    Args:
        features: features of each program, (statements, features).
        describe: function (programs, statements, features) → (width and a feature of each knob, programs).
        width: number of features from `describe` besides those of knobs.
    """
    knobs = features[0].shape[1] - len(NAMES) if len(features) else 0
    rows = np.empty((len(features), width + knobs), np.float32)
    lengths = np.array([len(of) for of in features])
    for length in np.unique(lengths):
        places = np.flatnonzero(lengths == length)
        rows[places] = describe(np.stack([features[i] for i in places.tolist()])).T
    return rows
