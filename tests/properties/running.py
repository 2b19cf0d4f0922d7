"""One schedule, run three ways and compared."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from hypothesis import settings
from numpy.typing import NDArray

from search_space.ir.expr import FLOATS
from search_space.ir.stmt import Allocate, For, LoopProgram, Seq, Stmt
from targets.base import BuildError, Target
from tests.interpreter import interpret
from tests.native import run_module

NO_CODE = re.compile(
    r"nothing must be computed at a vectorized loop|vectorized loops must not nest"
    r"|a vectorized loop must index what it stores|unrolled statements must be at most"
)
"""Legal schedules that the CPU has no code for, by what it says of them; any other refusal is a mistake."""

MOST_STORES = 20_000
"""Most stores of the interpreter: clamped tiles of 113 inside of each other compute an element many times over."""

TOLERANCE = {"float32": 1e-5, "float16": 2e-2, "bfloat16": 1.5e-1}


def examples(count: int) -> int:
    """Returns how many examples a test runs: `count`, or more under a profile that asks for more than 100."""
    return count * settings.default.max_examples // 100


def same(actual: NDArray[Any], expected: NDArray[Any], dtype: str, what: str) -> None:
    """Equal for integers; for floats equal up to the order of sums."""
    if dtype in FLOATS:
        a, b = actual.astype(np.float64), expected.astype(np.float64)
        scale = max(1.0, float(np.abs(b).max()))
        np.testing.assert_allclose(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale, err_msg=what)
    else:
        np.testing.assert_array_equal(actual, expected, err_msg=what)


def no_code(error: BuildError) -> bool:
    """Tells whether a refusal is a known one."""
    return NO_CODE.match(str(error)) is not None


def stores(stmt: Stmt) -> int:
    """Counts the elements that the interpreter stores, conditions aside."""
    if isinstance(stmt, For):
        return int(stmt.extent.value) * stores(stmt.body)
    if isinstance(stmt, Seq):
        return sum(stores(part) for part in stmt.body)
    return stores(stmt.body) if isinstance(stmt, Allocate) else 1


def run_interpreter(program: LoopProgram, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The outputs by name, from the interpreter."""
    memory = interpret(program, arrays)
    return {name: memory[name] for name in program.outputs}


def run_compiled(target: Target, program: LoopProgram, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The outputs by name, from a kernel that runs in a child process.

    Raises:
        BuildError: the target has no code for the program.
        KernelCrash: the kernel ended the process.
    """
    module = target.build(program)
    inputs = [arrays[source.name] for source in module.sources]
    outputs = run_module(target, module, inputs, text=str(program))
    return dict(zip(module.outputs, outputs, strict=True))
