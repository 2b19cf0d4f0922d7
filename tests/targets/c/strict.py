"""C targets of tests: one whose compiler takes no warning for granted, and one for each compiler and its levels."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from targets.c.compiler import Compiler
from targets.c.target import CTarget

WARNINGS = (
    *("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wundef", "-pedantic", "-Werror"),
    "-Wno-maybe-uninitialized",  # GCC guesses, and loses track of arrays that guarded tails fill
)
LEVELS = ("-O0", "-O1", "-O2", "-O3")


@dataclass(frozen=True)
class TestCompiler(Compiler):
    """A compiler with options behind those of every kernel.

    Attributes:
        more: the options.
    """

    __test__ = False
    more: tuple[str, ...] = WARNINGS

    @property
    def flags(self) -> tuple[str, ...]:
        return (*super().flags, *self.more)


def strict() -> CTarget:
    """The target of this host; what its compiler would warn of it refuses."""
    return CTarget(TestCompiler())


@cache
def variants() -> tuple[tuple[str, ...], ...]:
    """Compilers of this host, each with its optimisation levels; GCC also with copies of 32 bytes."""
    found = [(name, level) for name in ("cc", "clang") if shutil.which(name) for level in LEVELS]
    wide = ("cc", "-O2", "-mmove-max=256")
    return (*found, *([wide] if _takes(*wide) else []))


def variant_target(variant: tuple[str, ...]) -> CTarget:
    """The target of a compiler and its options; it computes, as always, for this host's processor."""
    name, *more = variant
    return CTarget(TestCompiler(name, more=tuple(more)))


def _takes(name: str, *options: str) -> bool:
    done = subprocess.run([name, *options, "-E", "-x", "c", "/dev/null"], capture_output=True, check=False)
    return done.returncode == 0
