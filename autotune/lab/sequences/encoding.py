"""Schedules as arrays: a row for each primitive, with its kind and its arguments.

After TLP: a schedule contains all decisions of a search, so no program is lowered, and no feature is designed by hand.
Steps of this project's schedules and Ansor's codes have the same kind where they do the same.
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
MORE = ("tensorize", "pack", "relayout", "set_scope", "interleave", "widen")
KINDS = (*CODES, *MORE)
VALUES_PER_STEP = 20
"""Numbers and names of a step that are kept."""
WIDTH = len(KINDS) + VALUES_PER_STEP
LENGTH = 48
"""Steps of a schedule that are kept."""
_NAMES = 251  # hash values of names; by CRC-32, which is the same in every process, unlike `hash`


def encode(steps: Sequence[Sequence[Any]]) -> NDArray[np.float16]:
    """Encodes a schedule's steps: (`LENGTH`, `WIDTH`), rows of 0 after the last.

    Numbers are signed logarithms, so that extents compare by their ratio; names are a hash in [0, 1).
    """
    rows = np.zeros((LENGTH, WIDTH), np.float16)
    for row, (kind, *given) in zip(rows, steps, strict=False):
        row[KINDS.index(kind)] = 1
        values = list(_flat(given))[:VALUES_PER_STEP]
        row[len(KINDS) : len(KINDS) + len(values)] = values
    return rows


def own_steps(trace: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Converts a trace's JSON to steps that `encode` takes: values in the order of their keys."""
    steps: list[tuple[Any, ...]] = []
    for step in trace:
        kind = step["step"]
        steps.append((OWN.get(kind, kind), *(value for key, value in step.items() if key != "step")))
    return steps


def _flat(item: Any) -> Iterator[float]:
    if isinstance(item, str):
        yield zlib.crc32(item.encode()) % _NAMES / _NAMES
    elif isinstance(item, Mapping):
        for value in item.values():
            yield from _flat(value)
    elif isinstance(item, list | tuple):
        for value in item:
            yield from _flat(value)
    else:
        number = 0.0 if item is None else float(item)
        yield float(np.sign(number) * np.log2(1.0 + abs(number)))
