"""Operations counted in statements are those that machine code is made of."""

from __future__ import annotations

import re

import numpy as np
import pytest

from costmodel.features.statement import statements
from search_space import workloads
from search_space.ir.expr import Expr, eq, load, select, var
from search_space.ir.stmt import LoopProgram, Store
from search_space.space import generate, make_program
from targets import registry
from tests.costmodel.programs import buffer, nest

LLVM_NAMES = {"add": "fadd", "sub": "fsub", "mul": "fmul"}


@pytest.mark.parametrize("algorithm", ["direct", "winograd2", "winograd4"])
def test_float_operations_are_those_in_the_llvm_text(algorithm: str) -> None:
    target = registry.get("cpu")
    workload = workloads.conv2d(
        batch=1, height=12, width=12, in_channels=32, out_channels=32, kernel=3, padding=1, bias=True
    )
    sketch = next(s for s in generate(workload, target.hardware, [algorithm]).sketches if "pad_root" in s.name)
    draws = np.random.default_rng(0).integers(0, [len(g.table) for g in sketch.groups], (500, len(sketch.groups)))
    choice = next(row for row in draws.astype(np.int32) if sketch.legal(row[None])[0])
    program = make_program(workload, algorithm, sketch.trace(choice))
    text, *_ = target.llvm_ir(program)
    kind = f"<{target.hardware.float_lanes} x float>"
    found = {name: len(re.findall(rf"= {op} {kind}", text)) for name, op in LLVM_NAMES.items()}
    found["fma"] = len(re.findall(rf"call {kind} @llvm\.fma\.", text))
    expected = dict.fromkeys(found, 0.0)
    for statement in statements(program):
        copies = np.prod([int(loop.extent.value) for loop in statement.loops if loop.kind == "unroll"])
        for name in expected:
            expected[name] += copies * statement.operations.get(name, 0)
    assert found["fma"] > 0
    assert found == pytest.approx(expected)


def count_operations(index: Expr, kind: str) -> dict[str, float]:
    """Operations of `out[i] = x[0] + x[1] if index == 0 else x[0] + x[1] + x[2] * x[3]` in a loop i of two."""
    x = [load("x", (place,), "float32") for place in range(4)]
    value = select(eq(index, 0), x[0] + x[1], x[0] + x[1] + x[2] * x[3])
    body = nest(Store("out", (var("i"),), value), ("o", 3, "serial"), ("i", 2, kind))
    (found,) = statements(LoopProgram("chosen", (buffer("x", 4), buffer("out", 2)), body, ("out",)))
    return dict(found.operations)


def test_unrolled_choices_cost_their_branch_and_what_they_share_once() -> None:
    assert count_operations(var("i"), "unroll") == {"add": 0.5, "fma": 0.5}


@pytest.mark.parametrize(("index", "kind"), [("i", "serial"), ("i", "vectorize"), ("o", "unroll")])
def test_choices_that_are_made_at_run_time_cost_both_branches(index: str, kind: str) -> None:
    found = count_operations(var(index), kind)
    assert (found["add"], found["fma"]) == (1, 1)
