"""Runs device programs on the host, threads side by side, and reports races: see `emulator`."""

from targets.cuda.emulator.emulator import emulate
from targets.cuda.emulator.races import DivergenceError, RaceError

__all__ = ["DivergenceError", "RaceError", "emulate"]
