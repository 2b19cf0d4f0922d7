"""Schedules and kernels for a distribution of one size: `tune_for_sizes` and its parts."""

from autotune.tuner.sizes.family import Family
from autotune.tuner.sizes.opening import open_program
from autotune.tuner.sizes.result import SizeRange, SizesResult
from autotune.tuner.sizes.tune import tune_for_sizes

__all__ = ["Family", "SizeRange", "SizesResult", "open_program", "tune_for_sizes"]
