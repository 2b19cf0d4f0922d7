"""What every sketch keeps: legality, both ways to lower a candidate, and the program that comes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from search_space import workloads
from search_space.ir.expr import substitute, variables
from search_space.ir.interp import interpret
from search_space.ir.printer import print_program
from search_space.ir.stmt import Constraint, LoopProgram
from search_space.ir.verify import verify
from search_space.schedule.errors import ScheduleError
from search_space.space import Sketch, concrete, generate, program_of
from search_space.workloads import Workload
from tests.golden.cases import HARDWARE
from tests.operators.cases import SMALL
from tests.operators.test_definitions import check

ROWS = 200
LOWERED, RUN = 2, 1
"""Legal rows of each sketch that are lowered, and of those interpreted: that is slow."""
CASES: tuple[Workload, ...] = (
    workloads.conv2d(height=3, width=4, in_channels=3, out_channels=4, padding=1, bias=True, activation="relu"),
    workloads.conv2d(height=4, width=3, in_channels=3, out_channels=4, dtype="int8", padding=1, activation="relu"),
    *(
        next(w for w in SMALL if w.operator == operator and w.inputs[0].dtype.startswith(dtype))
        for operator, dtype in (
            ("conv1d", "float32"),
            ("depthwise_conv2d", "float32"),
            ("conv2d_transpose", "float32"),
            ("matmul", "float32"),
            ("matmul", "bfloat16"),
            ("matmul", "uint8"),
            ("batch_matmul", "float32"),
            ("dense", "float32"),
            ("max_pool2d", "float32"),
            ("softmax", "float32"),
            ("layer_norm", "float32"),
            ("reduce", "float32"),
            ("elementwise", "float32"),
        )
    ),
)


def rows(sketch: Sketch, rng: np.random.Generator) -> NDArray[np.int32]:
    """Random choices, legal or not: (ROWS, groups)."""
    drawn = [rng.integers(len(group.table), size=ROWS) for group in sketch.groups]
    return np.stack(drawn, 1).astype(np.int32) if drawn else np.zeros((1, 0), np.int32)


def holds(constraint: Constraint, values: dict[str, int]) -> bool:
    """Whether one candidate keeps a limit: exactly, one number at a time."""
    left, right = (substitute(side, values) for side in (constraint.left, constraint.right))
    assert left.is_const and right.is_const, constraint
    return bool(left.value <= right.value)


def text(program: LoopProgram) -> str:
    """A program as text, without the limits that its extents were chosen under."""
    return "\n".join(line for line in print_program(program).splitlines() if not line.startswith("  require "))


def sketches() -> Iterator[Any]:
    for workload in CASES:
        for sketch in generate(workload, HARDWARE).sketches:
            yield pytest.param(workload, sketch, id=f"{workload.operator}-{workload.inputs[0].dtype}-{sketch.name}")


EVERY = list(sketches())


@pytest.mark.parametrize(("workload", "sketch"), EVERY)
def test_legality_of_columns_is_that_of_one_candidate_at_a_time(workload: Workload, sketch: Sketch) -> None:
    drawn = rows(sketch, np.random.default_rng(0))
    expected = [all(holds(c, sketch.values(row)) for c in sketch.constraints) for row in drawn]
    assert sketch.legal(drawn).tolist() == expected
    assert any(expected)
    assert bool(sketch.violations(drawn)) == (not all(expected))


@pytest.mark.parametrize(("workload", "sketch"), EVERY)
def test_a_candidate_is_the_same_program_lowered_either_way(workload: Workload, sketch: Sketch) -> None:
    drawn = rows(sketch, np.random.default_rng(1))
    legal = sketch.legal(drawn)
    inputs = workload.make_inputs(2)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    for place, row in enumerate(drawn[legal][:LOWERED]):
        own = program_of(workload, sketch.algorithm, sketch.trace(row))
        verify(own)
        assert own.constraints == ()
        substituted = concrete(sketch, sketch.values(row))
        verify(substituted)
        assert text(own) == text(substituted)
        if place < RUN:
            check(workload, interpret(own, named)[workload.output.name], inputs)


@pytest.mark.parametrize(("workload", "sketch"), EVERY)
def test_what_breaks_a_limit_of_lowering_is_refused(workload: Workload, sketch: Sketch) -> None:
    """Tables hold no such values, so they are put in: a tile larger than its axis, a factor that does not divide."""
    drawn = rows(sketch, np.random.default_rng(3))
    values = sketch.values(drawn[sketch.legal(drawn)][0])
    for constraint in sketch.program.constraints:
        (variable,) = sorted(variables(constraint.left))
        wrong = next(n for n in (41, 43, 47) if not holds(constraint, {**values, variable: n}))
        with pytest.raises(ScheduleError):
            program_of(workload, sketch.algorithm, sketch.steps.substitute({**values, variable: wrong}))


@pytest.mark.parametrize("limit", ["registers", "unrolled operations"])
def test_limits_of_the_machine_are_reached(limit: str) -> None:
    """Or the first test would show nothing: some row of some sketch breaks each."""
    broken: set[str] = set()
    for case in EVERY:
        _, sketch = case.values
        broken |= set(sketch.violations(rows(sketch, np.random.default_rng(0))))
    assert limit in broken
