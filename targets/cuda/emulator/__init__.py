"""Runs device programs on the host, threads side by side, and reports races: see `emulator`."""

import targets.cuda.emulator.bulk
import targets.cuda.emulator.warpgroups
import targets.cuda.emulator.warps  # noqa: F401  (all register their instructions)
from targets.cuda.emulator.emulator import emulate
from targets.cuda.emulator.races import CopyError, DivergenceError, RaceError

__all__ = ["CopyError", "DivergenceError", "RaceError", "emulate"]
