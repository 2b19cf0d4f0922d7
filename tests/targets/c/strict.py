"""A C target whose compiler takes no warning for granted."""

from __future__ import annotations

from dataclasses import dataclass

from targets.c.compiler import Compiler
from targets.c.target import CTarget

WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wundef", "-pedantic", "-Werror")


@dataclass(frozen=True)
class StrictCompiler(Compiler):
    """Refuses what it would warn of."""

    @property
    def flags(self) -> tuple[str, ...]:
        return (*super().flags, *WARNINGS)


def strict() -> CTarget:
    """The target of this host."""
    return CTarget(StrictCompiler())
