"""How soon a search was nearly where it ended."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SHARE = 0.95
"""Of the speed that a search ends with."""


def trials_to(seconds: Sequence[float], share: float = SHARE) -> int:
    """Trials until the best was within `share` of the speed of the best of all.

    Args:
        seconds: of each trial, in order; one that failed has inf or nan.
        share: of the speed.

    Raises:
        ValueError: no trial worked.
    """
    given = np.asarray(seconds, np.float64)
    found = np.where(np.isnan(given), np.inf, given)
    if not np.isfinite(found).any():
        raise ValueError(f"`seconds` must have a trial that worked, but none of {len(found)} did")
    return int(np.argmax(found <= found.min() / share)) + 1
