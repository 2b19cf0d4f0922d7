"""Sketches for machines whose memories programs fill: what they compute, what they hold, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from search_space import workloads
from search_space.hardware import Hardware
from search_space.ir.stmt import Allocate, For, Intrinsic, LoopProgram, walk_stmt
from search_space.lower.memories import is_nest
from search_space.machines.accelerator.tiling import tile_sizes
from search_space.sketch.tables import MAX_WASTE, ceildiv
from search_space.space import Sketch, concrete, generate, make_program
from search_space.workloads import Workload
from tests.interpreter import interpret

CAPACITIES = {"input": 1 << 7, "weight": 1 << 9, "accumulator": 1 << 8}
NESTS = 300


def machine(batch: int, outs: int, ins: int) -> Hardware:
    """Small memories, so that limits are reached."""
    return Hardware(
        "small",
        cores=1,
        vector_bytes=4 * batch * outs,
        vector_registers=64,
        l1_bytes=1 << 12,
        l2_bytes=1 << 12,
        l3_bytes=1 << 12,
        peak_flops=1e9,
        bandwidth=1e8,
        features=(f"gemm_tile:{batch}x{outs}x{ins}",),
        memories=tuple(CAPACITIES.items()),
        clock_hz=1e8,
        most_nests=NESTS,
    )


CASES: tuple[tuple[Workload, Hardware], ...] = (
    (workloads.conv2d_blocked(5, 4, 4, 8, kernel=3, padding=1, shift=4, block=(1, 2, 2)), machine(1, 2, 2)),
    (workloads.conv2d_blocked(5, 6, 8, 4, 4, 3, 2, 1, 4, relu=True, block=(2, 2, 4)), machine(2, 2, 4)),
    (workloads.conv2d_blocked(4, 4, 4, 4, kernel=1, bias=False, shift=0, block=(1, 4, 2)), machine(1, 4, 2)),
    (workloads.dense_blocked(3, 16, 12, shift=4, block=(1, 4, 4)), machine(1, 4, 4)),
    (workloads.dense_blocked(1, 8, 4, shift=4, block=(1, 4, 4)), machine(1, 4, 4)),
)


def draw_rows(sketch: Sketch, count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if not sketch.groups:
        return np.zeros((1, 0), np.int32)
    return np.stack([rng.integers(len(group.table), size=count) for group in sketch.groups], 1).astype(np.int32)


def memory_bytes(program: LoopProgram) -> dict[str, int]:
    """Bytes of each memory that a concrete program takes: every buffer, once for each virtual thread around it."""
    bytes_: dict[str, int] = {}

    def visit(stmt: object, threads: int) -> None:
        if isinstance(stmt, Allocate):
            size = int(stmt.buffer.size.value) * np.dtype(stmt.buffer.dtype).itemsize * threads
            bytes_[stmt.buffer.scope] = bytes_.get(stmt.buffer.scope, 0) + size
            visit(stmt.body, threads)
        elif isinstance(stmt, For):
            visit(stmt.body, threads * int(stmt.extent.value) if stmt.kind == "vthread" else threads)
        else:
            for child in getattr(stmt, "body", ()) if not isinstance(stmt, Intrinsic) else ():
                visit(child, threads)

    visit(program.body, 1)
    return bytes_


def nests(stmt: object) -> int:
    """Innermost nests that run."""
    if is_nest(stmt):  # type: ignore[arg-type]
        return 1
    if isinstance(stmt, For):
        return int(stmt.extent.value) * nests(stmt.body)
    if isinstance(stmt, Allocate):
        return nests(stmt.body)
    return sum(nests(child) for child in stmt.body)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("workload", "hardware"), CASES, ids=str)
def test_candidates_mean_the_reference_and_are_lowered_either_way(workload: Workload, hardware: Hardware) -> None:
    inputs = workload.make_inputs(0)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    found = generate(workload, hardware).sketches
    long = sum(extent > 1 for extent in workload.output.shape[:-2])
    assert len(found) == min(4, 1 << long)  # orders of the outer loops, each with constants that stay or not
    for sketch in found:
        rows = draw_rows(sketch, 300)
        row = rows[sketch.legal(rows)][0]
        program = make_program(workload, sketch.algorithm, sketch.trace(row))
        assert str(program) == str(replace(concrete(sketch, sketch.values(row)), constraints=()))
        assert any(isinstance(node, Intrinsic) for node in walk_stmt(program.body))
        np.testing.assert_array_equal(interpret(program, named)[workload.output.name], workload.reference(*inputs))


def test_limits_are_what_programs_take() -> None:
    """A legal candidate fits all memories, an illegal one exceeds what its violation names."""
    workload, hardware = CASES[0]
    broken: set[str] = set()
    for sketch in generate(workload, hardware).sketches:
        rows = draw_rows(sketch, 20)
        for row, legal in zip(rows, sketch.legal(rows), strict=True):
            program = make_program(workload, sketch.algorithm, sketch.trace(row))
            taken = memory_bytes(program)
            over = {f"{scope} memory" for scope, size in taken.items() if size > CAPACITIES[scope]}
            over |= {"instructions"} if nests(program.body) > NESTS else set()
            named = set(sketch.violations(row[None]))
            assert over == named - {"virtual threads"} and legal == (not named)
            broken |= named
    assert {"accumulator memory", "instructions", "virtual threads"} <= broken


def test_tiles_waste_little() -> None:
    for extent in (1, 7, 14, 56):
        rows = tile_sizes(extent, 2)
        assert (1, extent) in rows
        assert all(ceildiv(extent, tile * count) * tile * count <= extent * MAX_WASTE for count, tile in rows)
    assert (2, 7) in tile_sizes(14, 2) and not any(count == 2 for count, _ in tile_sizes(14, 1))


@pytest.mark.parametrize(
    "workload",
    [
        workloads.matmul(8, 8, 8),
        workloads.dense_blocked(2, 8, 8, block=(1, 2, 2)),
        workloads.elementwise("relu", (4, 4)),
        workloads.max_pool2d(height=4, width=4, channels=4),
    ],
    ids=str,
)
def test_what_the_instruction_does_not_compute_has_no_sketch(workload: Workload) -> None:
    assert generate(workload, machine(1, 4, 4)).sketches == ()


def test_few_numbers_stay_for_all_tiles() -> None:
    """The bias is copied in the outermost loop, outside of virtual threads."""
    workload, hardware = CASES[0]
    sketch = generate(workload, hardware).sketches[0]
    rows = draw_rows(sketch, 300)
    lines = str(make_program(workload, "direct", sketch.trace(rows[sketch.legal(rows)][0]))).splitlines()
    bias = next(i for i, line in enumerate(lines) if "alloc bias.accumulator" in line)
    threads = [i for i, line in enumerate(lines) if line.strip().startswith("vthread")]
    assert all(bias < i for i in threads)
