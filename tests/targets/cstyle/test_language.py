"""A new language like C is one subclass: what the printer itself writes, in any schedule, computes what it must."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest

from search_space.ir.expr import const, make, var
from search_space.ir.regroup import Regrouping
from search_space.ir.stmt import Intrinsic, LoopProgram, Operand
from search_space.lower import cleanup, lower
from search_space.schedule.errors import ScheduleError
from targets.base import BuildError
from targets.c.compiler import Compiler
from targets.cstyle.spelling import Identifiers
from targets.cstyle.statements import Text
from targets.cstyle.values import Values
from targets.network_library import open_library
from tests.properties.running import MOST_STORES, same, stores
from tests.properties.test_random_traces import start
from tests.properties.traces import Dice, random_trace

PRELUDE = """
#include <math.h>
#include <stdint.h>
static float min_float(float a, float b) { return a < b || a != a ? a : b; }
static float max_float(float a, float b) { return a > b || a != a ? a : b; }
static int64_t add(int64_t a, int64_t b) { return a + b; }
static int64_t sub(int64_t a, int64_t b) { return a - b; }
static int64_t mul(int64_t a, int64_t b) { return a * b; }
static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t floordiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static int64_t mod(int64_t a, int64_t b) { return a - floordiv(a, b) * b; }
"""
VISIBILITY = '__attribute__((visibility("default")))'
_EXTREMES = {"min": "min_float", "max": "max_float"}


class Plain(Values):
    """C with the functions of `PRELUDE`."""

    EXTREMES = _EXTREMES

    def float_literal(self, value: float, dtype: str) -> str:
        number = float(np.float32(value))
        if not math.isfinite(number):
            return "NAN" if math.isnan(number) else "INFINITY" if number > 0 else "-INFINITY"
        return f"{number.hex()}f"

    def integer_operation(self, op: str, a: str, b: str, dtype: str) -> str:
        return f"({self.TYPES[dtype]}){self.helper(op, a, b)}"


class Names(Identifiers):
    """Identifiers apart from the functions of `PRELUDE`."""

    RESERVED_NAMES = Identifiers.RESERVED_NAMES | {"add", "sub", "mul", "min", "max", "floordiv", "mod"}


def function(program: LoopProgram) -> str:
    """A concrete program as one function `kernel` of its arrays."""
    text = Text(Names("kernel"), program.buffers, Plain, wide=False)
    arrays = ", ".join(text.parameter(b, b.name in program.outputs) for b in program.params)
    text.stmt(program.body)
    return "\n".join([f"{PRELUDE}\n{VISIBILITY} void kernel({arrays}) {{", *text.lines, "}\n"])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("conv", "float32"), ("transposed", "float32"), ("softmax", "float32"), ("chain", "int8"), ("mask", "uint8")],
)
def test_what_it_writes_computes_what_the_interpreter_says(name: str, dtype: str) -> None:
    state, arrays, wanted = start(name, dtype)
    ran = 0
    for seed in range(40):
        try:
            program = cleanup(lower(random_trace(Dice(seed), state)[1]))
        except ScheduleError:
            continue
        if program.prologues or stores(program.body) > MOST_STORES:
            continue
        out = {n: np.zeros(array.shape, array.dtype) for n, array in wanted.items()}
        given = [{**arrays, **out}[b.name] for b in program.params]
        open_library(Compiler().library(function(program))).kernel(*(ctypes.c_void_p(a.ctypes.data) for a in given))
        for output, found in out.items():
            same(found, wanted[output], program.buffers[output].dtype, f"{program}\n{function(program)}")
        ran += 1
        if ran == 3:
            return
    assert ran, "else nothing is held against the interpreter"


def test_what_a_language_has_no_text_for_is_refused() -> None:
    text = Text(Names(), {}, Plain, wide=False)
    with pytest.raises(BuildError, match="must be made of loops, buffers and stores, but got vnni_dot"):
        text.stmt(Intrinsic("vnni_dot", Operand("y", (), ()), ()))
    with pytest.raises(BuildError, match="an index must be arithmetic over loop variables, but got"):
        text.values.index(make("lt", var("i"), 3))
    with pytest.raises(BuildError, match="`floordiv` must be used on integers, but got dtype=float32"):
        text.values.combine("floordiv", "a", "b", "float32")


def test_divisions_are_plain_where_nothing_is_negative() -> None:
    values = Plain(Identifiers(), {}, Regrouping({"i": const(30)}), wide=False)
    assert values.index(var("i") // 4) == "(i / 4)"
    assert values.index((var("i") - 1) % 4) == "(int32_t)mod((i - 1), 4)"


def test_identifiers_are_those_of_the_language() -> None:
    names = Names("kernel")
    found = [names(name) for name in ("x.y", "x_y", "for", "kernel", "mod", "x.y")]
    assert found == ["x_y", "x_y_2", "for_2", "kernel_2", "mod_2", "x_y"]
    assert len(names) == 5
