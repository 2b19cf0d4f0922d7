"""Trials until a search is near its best result."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.reached import trials_to


def test_the_first_trial_within_the_share_counts() -> None:
    seconds = [np.nan, 4.0, np.inf, 2.1, 3.0, 2.0]
    assert trials_to(seconds) == 4 and trials_to(seconds, 0.96) == 6 and trials_to(seconds, 0.5) == 2
    assert trials_to([1.0]) == 1


def test_a_search_in_which_nothing_worked_is_refused() -> None:
    with pytest.raises(ValueError, match="must have a trial that worked, but none of 2 did"):
        trials_to([np.inf, np.nan])
