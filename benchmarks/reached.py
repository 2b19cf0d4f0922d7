"""Trials that a search needs to come close to its final result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SHARE = 0.95
"""Share of the speed that a search ends with."""


def trials_to(seconds: Sequence[float], share: float = SHARE) -> int:
    """Counts trials until the best was within `share` of the final speed.

    Args:
        seconds: seconds of each trial, in order; inf or nan for a failed one.
        share: share of the speed.

    Raises:
        ValueError: no trial worked.
    """
    given = np.asarray(seconds, np.float64)
    found = np.where(np.isnan(given), np.inf, given)
    if not np.isfinite(found).any():
        raise ValueError(f"`seconds` must have a trial that worked, but none of {len(found)} did")
    return int(np.argmax(found <= found.min() / share)) + 1
