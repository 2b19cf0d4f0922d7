"""Random element-wise programs whose operands are broadcast along any axes, on vectors of several widths.

An axis of one element in the middle of a shape makes lanes read blocks that overlap, which code for vectors loads in
parts and permutes. Such shapes are rare among random programs, so that they are drawn by themselves.
"""

from __future__ import annotations

import platform
from functools import cache

import numpy as np

from targets.cpu.target import get_target as get
from tests.fuzz import schedules
from tests.fuzz.nodes import BINARY, INTEGER_UNARY, UNARY
from tests.fuzz.programs import Program

EXTENTS = (1, 2, 2, 3, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11, 13, 17)
RANKS = (2, 3, 3, 3, 4, 4, 5)
DTYPES = ("float32",) * 8 + ("float16", "bfloat16", "int8", "uint8", "int32", "int64")
MOST_ELEMENTS = 1 << 9
"""Small arrays, in which one vector reaches over several rows."""

CANDIDATES = 4
"""Candidates of each sketch: those of element-wise programs differ in the width of vectors and in what is unrolled."""

PROCESSORS = ("cpu", "cpu:haswell")
"""Targets of different vector widths, of which those are used whose code this processor runs."""


def draw(seed: int) -> Program:
    """A program of one to three binary operations, most of them with an operand that is broadcast."""
    rng = np.random.default_rng([seed, 2])
    dtype = str(rng.choice(DTYPES))
    while True:
        shape = [int(e) for e in rng.choice(EXTENTS, int(rng.choice(RANKS)))]
        if np.prod(shape) <= MOST_ELEMENTS:
            break
    operands, nodes = [shape if rng.random() < 0.7 else _operand(rng, shape)], []
    for _ in range(int(rng.choice((1, 1, 1, 2, 3)))):
        operands.append(_operand(rng, shape))
        nodes.append("binary")
        if rng.random() < 0.25:
            nodes.append("unary")
    # Inputs come first in a program; a node names values by place among both.
    count, last, read = len(operands), 0, 1
    program: Program = {"inputs": [{"shape": s, "dtype": dtype, "constant": False} for s in operands], "nodes": []}
    for n, op in enumerate(nodes):
        if op == "unary":
            of, f = [last], str(rng.choice(list(UNARY) if dtype in ("float32",) else list(INTEGER_UNARY)))
            f = "relu" if dtype == "uint8" or f == "floor" else f  # a computed number near a step has two answers
        else:
            of = [last, read] if rng.random() < 0.5 else [read, last]
            f = str(rng.choice([f for f in BINARY if f != "divide" or dtype == "float32"]))
            read += 1
        program["nodes"].append({"op": op, "of": of, "attrs": {"f": f}})
        last = count + n
    return program


def _operand(rng: np.random.Generator, shape: list[int]) -> list[int]:
    """A shape that broadcasts to `shape`: mostly one axis of one element, else any of them, or leading axes absent."""
    if rng.random() < 0.6:
        axis = int(rng.integers(len(shape)))
        return [*shape[:axis], 1, *shape[axis + 1 :]]
    made = [1 if rng.random() < 0.35 else extent for extent in shape]
    return made[int(rng.integers(len(shape))) if rng.random() < 0.3 else 0 :]


def check(program: Program, seed: int) -> None:
    """Builds and runs random schedules of a program on one of the processors.

    Raises:
        Wrong: see `schedules.check`.
    """
    usable = usable_processors()
    schedules.check(program, seed, usable[seed % len(usable)], CANDIDATES)


@cache
def usable_processors() -> tuple[str, ...]:
    """Returns the `PROCESSORS` whose code runs here; the host's own always does."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return PROCESSORS[:1]
    own = set(get("cpu").limits.features)
    return tuple(spec for spec in PROCESSORS if set(get(spec).limits.features) <= own)
