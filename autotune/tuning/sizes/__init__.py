"""Schedules and kernels for a distribution of one size: `tune_for_sizes`, and what it is made of."""

from autotune.tuning.sizes.family import Family
from autotune.tuning.sizes.opening import opened
from autotune.tuning.sizes.result import Part, SizesResult
from autotune.tuning.sizes.tune import tune_for_sizes

__all__ = ["Family", "Part", "SizesResult", "opened", "tune_for_sizes"]
