"""Random candidates of sketches for GPUs, and what they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from autotune.compiler.executable.compile import Schedule
from search_space.hardware import Hardware
from search_space.ir.expr import Expr, const, load, substitute, transform, var
from search_space.ir.stmt import (
    THREAD_TAGS,
    Allocate,
    For,
    Intrinsic,
    LoopProgram,
    Operand,
    Seq,
    Stmt,
    Store,
    walk_stmt,
)
from search_space.ir.verify import verify
from search_space.lower.blocks import kernels
from search_space.schedule.intrinsics import get_intrinsic
from search_space.space import Sketch, algorithms_on, concrete, generate, make_program
from search_space.workloads import Workload
from targets.registry import get
from tests.properties.running import run_compiled


def draw_rows(sketch: Sketch, count: int, seed: int = 0) -> NDArray[np.int32]:
    """Random rows, legal or not."""
    rng = np.random.default_rng(seed)
    if not sketch.groups:
        return np.zeros((1, 0), np.int32)
    return np.stack([rng.integers(len(group.table), size=count) for group in sketch.groups], 1).astype(np.int32)


def legal(sketch: Sketch, count: int, seed: int = 0) -> NDArray[np.int32]:
    """`count` random rows that keep every limit."""
    rows = draw_rows(sketch, 4000, seed)
    rows = rows[sketch.legal(rows)]
    assert len(rows) >= min(count, sketch.size), (sketch.name, sketch.violations(draw_rows(sketch, 4000, seed)))
    return rows[:count]


def some_legal(sketches: Iterable[Sketch], rng: np.random.Generator) -> Iterator[tuple[Sketch, NDArray[np.int32]]]:
    """A legal row of each sketch that has one, in random order.

    On some processors no row of some sketches is legal: it depends on how wide their vectors are.
    """
    found = list(sketches)
    for place in rng.permutation(len(found)):
        rows = draw_rows(found[place], 500, int(rng.integers(1 << 32)))
        kept = found[place].legal(rows)
        if kept.any():
            yield found[place], rows[kept][0]


def make_chooser(hardware: Hardware, seed: int) -> Callable[[Workload], Schedule]:
    """A random candidate of each workload of a network, of one of its sketches."""

    def choose(workload: Workload) -> Schedule:
        space = generate(workload, hardware, algorithms_on(workload, hardware))
        sketch = space.sketches[seed % len(space.sketches)]
        return Schedule(sketch.algorithm, sketch.trace(legal(sketch, 1, seed)[0]))

    return choose


def check(workload: Workload, sketch: Sketch, row: NDArray[np.int32], seed: int = 0) -> LoopProgram:
    """Holds one candidate against the reference, lowered from its trace and substituted into its sketch.

    The loops run on the CPU as they are, those of threads one iteration after another.
    """
    program, other = make_program(workload, sketch.algorithm, sketch.trace(row)), concrete(sketch, sketch.values(row))
    verify(program)
    shapes = [{b.name: b.shape for b in p.buffers.values()} for p in (program, other)]
    assert shapes[0] == shapes[1]
    for kernel in kernels(program.body):
        assert_threads(kernel, {})
    inputs = workload.make_inputs(seed)
    named = {spec.name: array for spec, array in zip(workload.inputs, inputs, strict=True)}
    rtol, atol = workload.tolerance
    wanted = workload.reference(*inputs).astype(np.float64)
    for each in (program, other):
        out = run_compiled(get("cpu"), plain(each), named)[workload.output.name].astype(np.float64)
        np.testing.assert_allclose(out, wanted, rtol=rtol, atol=atol, err_msg=str(sketch.values(row)))
    return program


def plain(program: LoopProgram) -> LoopProgram:
    """Makes all loops serial, and instructions loops of what they compute, so that the program is quick to compile."""

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Seq):
            return Seq(tuple(visit(s) for s in stmt.body))
        if isinstance(stmt, For):
            return replace(stmt, kind="serial", body=visit(stmt.body))
        if isinstance(stmt, Intrinsic):
            return spelled_out(stmt)
        return replace(stmt, body=visit(stmt.body)) if isinstance(stmt, Allocate) else stmt

    def spelled_out(call: Intrinsic) -> Stmt:
        intrinsic = get_intrinsic(call.name)
        assert not call.reset and intrinsic.op.body is not None
        loops = {f"#{i}": var(f"{call.output.buffer}.#{i}") for i in range(len(intrinsic.extents))}
        operands = dict(zip(intrinsic.op.inputs, call.inputs, strict=True))

        def element(operand: Operand) -> list[Expr]:
            return [substitute(e, loops) for e in operand.elements]

        def read(node: Expr) -> Expr | None:
            if node.op != "load":
                return None
            operand = operands[node.args[0]]
            return load(operand.buffer, element(operand), node.dtype)

        value = transform(intrinsic.op.body, read)
        body: Stmt = Store(call.output.buffer, tuple(element(call.output)), value, intrinsic.reducer)
        for i, extent in reversed(list(enumerate(intrinsic.extents))):
            body = For(f"{call.output.buffer}.#{i}", const(extent), "serial", body)
        return body

    return replace(program, body=visit(program.body))


def assert_threads(stmt: Stmt, around: dict[str, int]) -> None:
    """No loop of threads runs further than the block has threads: those of one tag around it are as many."""
    for node in walk_stmt(stmt):
        if isinstance(node, For) and node.kind in THREAD_TAGS:
            found = around.setdefault(node.kind, int(node.extent.value))
            assert found == int(node.extent.value) or node.kind.startswith("blockIdx"), node.var
