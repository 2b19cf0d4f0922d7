"""Instructions of minima and maxima that keep NaN."""

from __future__ import annotations

import re

import pytest

from search_space.ir.expr import Expr, load, make, var
from search_space.ir.stmt import LoopProgram, Store
from targets import registry
from tests.targets.cuda.programs import buffer, loop

AT = (var("i"),)
X, Z = (load(name, AT, "float32") for name in "xz")


def instructions(value: Expr, spec: str, lanes: int) -> list[str]:
    """Names of those that choose or compare, in the code of `y = value`."""
    target = registry.get(spec)
    params = tuple(buffer(name, lanes) for name in "xzy")
    made = LoopProgram("test", params, loop("i", lanes, "vectorize", Store("y", AT, value)), ("y",))
    return re.findall(r"\tv?(max|min|cmp\w+|fixupimm|blend\w*|and\w*|or)ps\t", target.assembly(target.build(made)))


@pytest.mark.parametrize(("spec", "lanes"), [("cpu:znver4", 16), ("cpu:haswell", 8), ("cpu:x86-64", 4)])
def test_beside_a_constant_it_is_one(spec: str, lanes: int) -> None:
    assert instructions(make("max", X, 0.0), spec, lanes) == ["max"]
    assert instructions(make("min", make("max", X, 0.0), 6.0), spec, lanes) == ["max", "min"]


def test_of_two_values_it_is_two_with_avx512_and_three_without() -> None:
    assert instructions(make("max", X, Z), "cpu:znver4", 16) == ["max", "fixupimm"]
    assert sorted(instructions(make("max", X, Z), "cpu:haswell", 8)) == ["blendv", "cmpunord", "max"]
