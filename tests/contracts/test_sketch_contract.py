"""The contract of sketches: legality, both ways to lower a candidate, and the resulting program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from search_space import te, workloads
from search_space.hardware import Hardware
from search_space.ir.expr import const, substitute, variables
from search_space.ir.printer import print_program
from search_space.ir.stmt import Constraint, LoopProgram
from search_space.ir.verify import verify
from search_space.machines.base import Machine
from search_space.machines.cpu.elementwise import Elementwise
from search_space.machines.registry import MACHINES, get_machine, get_rules
from search_space.schedule.errors import ScheduleError
from search_space.schedule.state import Stage
from search_space.sketch.base import Draft, SketchRule
from search_space.sketch.generate import derive
from search_space.space import Sketch, concrete, generate, make_program, unscheduled_state
from search_space.workloads import Workload
from tests.golden.cases import HARDWARE
from tests.gpu.machines import H200
from tests.interpreter import interpret
from tests.search_space.operators.cases import SMALL
from tests.search_space.operators.test_definitions import check
from tests.search_space.sketch.test_chained_products import attention
from tests.search_space.sketch.test_scattered import scatter

pytestmark = pytest.mark.xdist_group("sketches")  # what a sketch has been asked for stays with it
ROWS = 200
LOWERED_ROWS, RUN = 2, 1
"""Legal rows of each sketch that are lowered, and of those interpreted: that is slow."""
HOPPER = replace(H200, features=("mma", "wgmma"))
ACCELERATOR = Hardware(
    "small",
    cores=1,
    vector_bytes=8,
    vector_registers=64,
    l1_bytes=1 << 12,
    l2_bytes=1 << 12,
    l3_bytes=1 << 12,
    peak_flops=1e9,
    bandwidth=1e8,
    features=("gemm_tile:1x2x2",),
    memories=(("input", 1 << 7), ("weight", 1 << 9), ("accumulator", 1 << 8)),
    clock_hz=1e8,
    most_nests=300,
)
MACHINE = {"cpu": HARDWARE, "gpu": HOPPER, "accelerator": ACCELERATOR}
"""One of each kind."""


def transposition(rows: int, columns: int) -> Workload:
    x = te.placeholder((rows, columns), name="x")
    return Workload.of([x, te.compute((columns, rows), lambda i, j: x[j, i], name="y")])


CPU_CASES: tuple[Workload, ...] = (
    workloads.conv2d(height=3, width=4, in_channels=3, out_channels=4, padding=1, bias=True, activation="relu"),
    workloads.conv2d(height=4, width=3, in_channels=3, out_channels=4, dtype="int8", padding=1, activation="relu"),
    workloads.depthwise_conv2d(height=3, width=3, channels=16, kernel=2, dtype="int8"),
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
GPU_CASES: tuple[Workload, ...] = (
    workloads.matmul(5, 12, 8),
    workloads.matmul(13, 7, 41, dtype="bfloat16"),
    workloads.matmul(33, 64, 64, dtype="float16"),
    workloads.conv2d(1, 3, 4, 4, 4, 3, 1, 1, bias=True, activation="relu"),
    workloads.softmax(3, 20),
    workloads.reduce((2, 2048), 1),
    workloads.elementwise("relu", (3, 20)),
)
ACCELERATOR_CASES: tuple[Workload, ...] = (
    workloads.conv2d_blocked(5, 4, 4, 8, kernel=3, padding=1, shift=4, block=(1, 2, 2)),
    workloads.dense_blocked(3, 8, 6, shift=4, block=(1, 2, 2)),
)
SPECIAL: tuple[Workload, ...] = (
    attention(1, 8, 8, 4, 4),
    workloads.reduce((2, 1 << 20), 1),
    transposition(64, 64),
    workloads.matmul(m=32, n=128, k=128),
    workloads.sparse_matmul(16, 16, 4, (16, 1), 2),
    workloads.matmul(m=64, n=2048, k=512, constant_b=False),
    scatter((4,), 64, (16,)),
)
"""Large workloads, the only ones that some rules apply to."""
CASES = {"cpu": CPU_CASES, "gpu": GPU_CASES, "accelerator": ACCELERATOR_CASES}


def rows(sketch: Sketch, rng: np.random.Generator) -> NDArray[np.int32]:
    """Random choices, legal or not: (ROWS, groups)."""
    drawn = [rng.integers(len(group.table), size=ROWS) for group in sketch.groups]
    return np.stack(drawn, 1).astype(np.int32) if drawn else np.zeros((1, 0), np.int32)


def holds(constraint: Constraint, values: dict[str, int]) -> bool:
    """Tells whether one candidate keeps a limit: exactly, one number at a time."""
    left, right = (substitute(side, values) for side in (constraint.left, constraint.right))
    assert left.is_const and right.is_const, constraint
    return bool(left.value <= right.value)


def text(program: LoopProgram) -> str:
    """A program as text, without the limits that its extents were chosen under."""
    return "\n".join(line for line in print_program(program).splitlines() if not line.startswith("  require "))


def sketches() -> Iterator[Any]:
    for kind, hardware in MACHINE.items():
        for workload in CASES[kind]:
            for sketch in generate(workload, hardware).sketches:
                name = f"{kind}-{workload.operator}-{workload.inputs[0].dtype}-{sketch.name}"
                yield pytest.param(workload, sketch, id=name)


EVERY = list(sketches())
INTERPRETED_CASES = [case for case in EVERY if case.values[1].hardware.kind != "gpu"]
"""Tiles of GPUs are large for an interpreter: `tests/gpu` compiles their loops."""


@pytest.mark.parametrize(("workload", "sketch"), EVERY)
def test_legality_of_columns_is_that_of_one_candidate_at_a_time(workload: Workload, sketch: Sketch) -> None:
    drawn = rows(sketch, np.random.default_rng(0))
    expected = [all(holds(c, sketch.values(row)) for c in sketch.constraints) for row in drawn]
    assert sketch.legal(drawn).tolist() == expected
    assert any(expected)
    assert bool(sketch.violations(drawn)) == (not all(expected))


@pytest.mark.parametrize(("workload", "sketch"), INTERPRETED_CASES)
def test_a_candidate_is_the_same_program_lowered_either_way(workload: Workload, sketch: Sketch) -> None:
    drawn = rows(sketch, np.random.default_rng(1))
    legal = sketch.legal(drawn)
    inputs = workload.make_inputs(2)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    for place, row in enumerate(drawn[legal][:LOWERED_ROWS]):
        own = make_program(workload, sketch.algorithm, sketch.trace(row))
        verify(own)
        assert own.constraints == ()
        substituted = concrete(sketch, sketch.values(row))
        verify(substituted)
        assert text(own) == text(substituted)
        if place < RUN:
            check(workload, interpret(own, named)[workload.output.name], inputs)


@pytest.mark.parametrize(("workload", "sketch"), INTERPRETED_CASES)
def test_what_breaks_a_limit_of_lowering_is_refused(workload: Workload, sketch: Sketch) -> None:
    """Tables hold no such values, so they are put in: a tile larger than its axis, a factor that does not divide."""
    drawn = rows(sketch, np.random.default_rng(3))
    values = sketch.values(drawn[sketch.legal(drawn)][0])
    for constraint in sketch.program.constraints:
        (variable,) = sorted(variables(constraint.left))
        wrong = next(n for n in (41, 43, 47) if not holds(constraint, {**values, variable: n}))
        with pytest.raises(ScheduleError):
            make_program(workload, sketch.algorithm, sketch.steps.substitute({**values, variable: wrong}))


@pytest.mark.parametrize("limit", ["registers", "unrolled operations"])
def test_limits_of_the_machine_are_reached(limit: str) -> None:
    """Some row of some sketch breaks each limit; the first test would show nothing otherwise."""
    broken: set[str] = set()
    for case in EVERY:
        _, sketch = case.values
        broken |= set(sketch.violations(rows(sketch, np.random.default_rng(0))))
    assert limit in broken


# ---------------------------------------------------------------------- kinds of machines
def test_every_kind_of_machine_is_here() -> None:
    assert MACHINE.keys() == CASES.keys() == MACHINES.keys()
    assert [hardware.kind for hardware in MACHINE.values()] == list(MACHINE)


@pytest.mark.parametrize("kind", MACHINES)
def test_rules_have_names_of_their_own_and_say_what_they_do(kind: str) -> None:
    names = [rule.name for rule in get_rules(kind)]
    assert len(set(names)) == len(names) > 0
    assert all(type(rule).__doc__ for rule in get_rules(kind))


def test_every_rule_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that apply to no case would not be tested; one for several kinds of machine may apply on any of them."""
    applied: set[str] = set()
    for rule in (rule for kind in MACHINES for rule in get_rules(kind)):

        def note_and_apply(
            draft: Draft, stage: Stage, hardware: Hardware, rule: SketchRule = rule, own: Any = rule.apply
        ) -> Any:
            applied.add(rule.name)
            return own(draft, stage, hardware)

        monkeypatch.setattr(rule, "apply", note_and_apply)
    for kind, hardware in MACHINE.items():
        for workload in (*SMALL, *CASES[kind], *SPECIAL):
            for algorithm in workload.algorithms:
                derive(unscheduled_state(workload, algorithm), hardware)
    # What stands for an instruction is refused where there is none.
    derive(
        unscheduled_state(workloads.matmul(4, 16, 7, dtype="bfloat16"), "pairs"), replace(MACHINE["cpu"], features=())
    )
    never = {rule.name for kind in MACHINES for rule in get_rules(kind)} - applied
    assert not never, (
        f"rules in front of {', '.join(sorted(never))} take all they match, or `CASES` has nothing for them"
    )


@pytest.mark.parametrize("kind", MACHINES)
def test_whatever_rules_are_offered_is_scheduled_whole_or_not_at_all(kind: str) -> None:
    for workload in (*SMALL, *CASES[kind]):
        for algorithm in workload.algorithms:
            derived = derive(unscheduled_state(workload, algorithm), MACHINE[kind])
            assert not derived.refusals
            for draft in derived.drafts:
                assert draft.finished_stages >= {stage.name for stage in draft.state.stages}
                assert draft.trace.apply(unscheduled_state(workload, algorithm)) == draft.state


def test_a_kind_of_machine_of_ones_own_has_its_own_rules_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    def limits(program: LoopProgram, hardware: Hardware) -> tuple[Constraint, ...]:
        return (Constraint("odd", const(1), const(0)),)

    own = Machine([Elementwise()], limits=limits)
    monkeypatch.setitem(MACHINES, "plain", f"{__name__}:OWN")
    monkeypatch.setitem(globals(), "OWN", own)
    hardware = replace(HARDWARE, machine="plain")
    assert Hardware.from_json(hardware.to_json()).kind == hardware.kind == "plain"
    assert get_machine("plain") is own and HARDWARE.kind == "cpu" and "machine" not in HARDWARE.to_json()
    (sketch,) = generate(workloads.softmax(3, 40), hardware, ["direct"]).sketches
    assert sketch.constraints[-1].name == "odd" and not sketch.legal(np.zeros((1, len(sketch.groups)), np.int32))
    with pytest.raises(ValueError, match="`machine` must be one of cpu, gpu, accelerator, plain, but got"):
        get_machine("fpga")
