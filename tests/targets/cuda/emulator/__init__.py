"""Runs device programs on the host, threads side by side, and reports races: see `emulator`."""

import tests.targets.cuda.emulator.bulk
import tests.targets.cuda.emulator.warpgroups
import tests.targets.cuda.emulator.warps  # noqa: F401  (all register their instructions)
from tests.targets.cuda.emulator.emulator import emulate
from tests.targets.cuda.emulator.races import CopyError, DivergenceError, RaceError

__all__ = ["CopyError", "DivergenceError", "RaceError", "emulate"]
