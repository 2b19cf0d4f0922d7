"""A schedule as an array: a row for each primitive, its kind and what it was given.

As in TLP: a schedule says all that a search decides, so no program need be lowered, and none of it is designed by hand.
Steps of this project's schedules stand beside Ansor's codes, by the same kinds where they do the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.lab.sequences.ansor import CODES

OWN: Mapping[str, str] = {
    "split": "SP",
    "reorder": "RE",
    "fuse": "FU",
    "annotate": "AN",
    "pragma": "PR",
    "compute_at": "CA",
    "compute_inline": "CI",
    "cache_read": "CHR",
    "cache_write": "CHW",
    "rfactor": "RF",
}
"""Step of this project → Ansor's code for the same; the others are kinds of their own."""
MORE = ("tensorize", "pack", "relayout", "set_scope", "interleave")
KINDS = (*CODES, *MORE)
GIVEN = 20
"""Numbers and names of a step that are kept."""
WIDTH = len(KINDS) + GIVEN
LENGTH = 48
"""Steps of a schedule that are kept."""
_NAMES = 251


def encode(steps: Sequence[Sequence[Any]]) -> NDArray[np.float16]:
    """A schedule's steps: (`LENGTH`, `WIDTH`), rows of 0 behind the last.

    Numbers are signed logarithms, so that extents compare by their ratio; names are a hash in [0, 1).
    """
    found = np.zeros((LENGTH, WIDTH), np.float16)
    for row, (kind, *given) in zip(found, steps, strict=False):
        row[KINDS.index(kind)] = 1
        values = list(_flat(given))[:GIVEN]
        row[len(KINDS) : len(KINDS) + len(values)] = values
    return found


def own_steps(trace: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """The steps of a trace's JSON as `encode` takes them: values in the order of their keys."""
    found: list[tuple[Any, ...]] = []
    for step in trace:
        kind = step["step"]
        found.append((OWN.get(kind, kind), *(value for key, value in step.items() if key != "step")))
    return found


def _flat(given: Any) -> Iterator[float]:
    if isinstance(given, str):
        yield zlib.crc32(given.encode()) % _NAMES / _NAMES
    elif isinstance(given, Mapping):
        for value in given.values():
            yield from _flat(value)
    elif isinstance(given, list | tuple):
        for value in given:
            yield from _flat(value)
    else:
        number = 0.0 if given is None else float(given)
        yield float(np.sign(number) * np.log2(1.0 + abs(number)))
