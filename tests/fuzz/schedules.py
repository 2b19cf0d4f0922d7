"""A tensor program under random candidates of each of its sketches, and under a random trace, against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from search_space.ir.expr import FLOATS
from search_space.ir.stmt import Intrinsic, LoopProgram, Stmt, walk_stmt
from search_space.lower import cleanup, lower
from search_space.schedule.errors import ScheduleError
from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload
from targets.base import BuildError, Target
from targets.registry import get
from tests.fuzz import programs
from tests.fuzz.programs import Program
from tests.fuzz.verdicts import Wrong
from tests.native import KernelCrash, run_program
from tests.properties.running import MOST_STORES, no_code, stores
from tests.properties.traces import Dice, random_trace
from tests.targets.c.strict import variant_target, variants

SKETCHES = 4
"""Sketches of a program, others for every seed."""

EPSILON = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def check(program: Program, seed: int, processor: str = "cpu", candidates: int = 1) -> None:
    """Builds and runs random schedules of a program.

    Args:
        program: program to run.
        seed: seed of its inputs and schedules.
        processor: target that code is made for, which this host must be able to run.
        candidates: number of each sketch.

    Raises:
        Wrong: no legal schedule, one that is refused, or a result that NumPy does not have.
    """
    found = programs.tensors(program)
    arrays = programs.inputs(program, seed)
    wanted, room = expected(program, arrays)
    workload, target = Workload.of(found), get(processor)
    ran = 0
    for name, lowered in _schedules(workload, seed, target, candidates):
        try:
            run(lowered, arrays, wanted, room, target)
        except Wrong as error:
            raise Wrong(f"{name} on {processor}: {error}") from None
        ran += 1
    if not ran:
        raise Wrong("a program must have a legal schedule, but got none")


def check_c(program: Program, seed: int) -> None:
    """Builds one random schedule of a program in C, by every compiler of this host at each level, and runs all.

    Raises:
        Wrong: no legal schedule, one that is refused, or a result that NumPy does not have.
    """
    arrays = programs.inputs(program, seed)
    wanted, room = expected(program, arrays)
    workload = Workload.of(programs.tensors(program))
    legal = [s for s in _schedules(workload, seed, get("c"), 1) if not any(map(_is_call, walk_stmt(s[1].body)))]
    if not legal:
        raise Wrong("a program must have a legal schedule in C, but got none")
    name, lowered = legal[seed % len(legal)]
    for variant in variants():
        try:
            run(lowered, arrays, wanted, room, variant_target(variant))
        except Wrong as error:
            raise Wrong(f"{' '.join(variant)}: {name}: {error}") from None


def _is_call(stmt: Stmt) -> bool:
    """Says that a statement calls a library, of which C has none."""
    return isinstance(stmt, Intrinsic)


def expected(program: Program, arrays: list[Any]) -> tuple[Any, float]:
    """The output, and how far another order of rounding may lie from it: 0 for integers."""
    narrow = programs.evaluate(program, arrays)
    wide = programs.evaluate(program, arrays, wide=True)
    output = narrow[-1]
    floats = [str(v.dtype) for v in narrow if str(v.dtype) in FLOATS]
    if not floats or str(output.dtype) not in FLOATS:
        return output, 0.0
    coarsest = max(EPSILON[dtype] for dtype in floats)
    largest = max(float(np.abs(v.astype(float)).max()) for v in wide)
    off = float(np.abs(narrow[-1].astype(float) - wide[-1]).max())
    return wide[-1], 32 * off + (64 if coarsest < 1e-5 else 4) * coarsest * max(1.0, min(largest, 500.0))


def run(program: LoopProgram, arrays: list[Any], reference: Any, room: float, target: Target) -> None:
    """Runs one kernel.

    Raises:
        Wrong: it is refused, ends its process, or its output is not what is wanted.
    """
    try:
        (output,) = run_program(target, program, arrays)
    except BuildError as error:
        if no_code(error):
            return
        raise Wrong(f"a legal schedule must have code, but BuildError: {error}") from None
    except KernelCrash as error:
        raise Wrong(str(error)) from None
    if output.shape != reference.shape:
        raise Wrong(f"an output must have shape {reference.shape}, but got {output.shape}")
    if output.dtype.kind in "iub":
        wrong = output != reference
    else:
        wrong = ~(np.abs(output.astype(float) - reference) <= room)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise Wrong(
            f"an output must agree with NumPy within {room:.3g}, but got {output[at]} for {reference[at]} at {at}, "
            f"{int(wrong.sum())} of {wrong.size} wrong"
        )


def _schedules(workload: Workload, seed: int, target: Target, candidates: int) -> Iterator[tuple[str, LoopProgram]]:
    """Random legal candidates of some sketches of every algorithm, and a random trace."""
    rng = np.random.default_rng([seed, 1])
    space = generate(workload, target.hardware)
    if not space.sketches:
        raise Wrong("a program must have a sketch, but got none")
    for number in rng.permutation(len(space.sketches))[:SKETCHES].tolist():
        sketch = space.sketches[number]
        for choices in _legal(sketch, rng, candidates):
            name = f"sketch {number} ({sketch.name}), choices {choices.tolist()}"
            try:
                yield name, make_program(workload, sketch.algorithm, sketch.trace(choices))
            except ScheduleError as error:
                raise Wrong(f"{name}: a legal candidate must have a program, but ScheduleError: {error}") from None
    trace, state = random_trace(Dice(seed), space.sketches[0].initial)
    try:
        lowered = cleanup(lower(state))
    except ScheduleError:
        return
    if stores(lowered.body) <= 20 * MOST_STORES:
        yield f"trace\n{trace}\n", lowered


def _legal(sketch: Sketch, rng: np.random.Generator, most: int) -> Any:
    """Different random legal rows, `most` of them or fewer: (rows, groups); none where a thousand draws have none."""
    rows = [rng.integers(len(g.table), size=1000) for g in sketch.groups]
    choices = np.stack(rows, 1).astype(np.int32) if rows else np.zeros((1, 0), np.int32)
    legal = choices[sketch.legal(choices)]
    if most > 1 and len(legal):
        _, first = np.unique(legal, axis=0, return_index=True)
        legal = legal[np.sort(first)]
    return legal[:most]
