"""Tensor cores: programs by warps, emulated by the layouts of their fragments, and their text compiled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from search_space import workloads
from search_space.ir.expr import const, load, var
from search_space.ir.stmt import Allocate, For, Intrinsic, Operand, Seq, Stmt, Store, seq, walk_stmt
from search_space.space import generate, make_program
from search_space.warp_intrinsics import MMAS
from search_space.workloads import Workload
from targets.base import BuildError
from targets.cuda.hardware import GPUS
from targets.cuda.kernels import device_program
from targets.cuda.nvrtc import compile_cubin, compile_ptx
from targets.cuda.program_text import emit_program
from targets.cuda.warps import lower_warps
from tests.gpu.candidates import legal
from tests.gpu.test_tensor import SMALL
from tests.targets.cuda.emulator import DivergenceError, emulate
from tests.targets.cuda.programs import LIMITS, buffer

H200 = GPUS["sm_90"]
SUMS = buffer("c", 16, 8, scope="warp")


@pytest.mark.parametrize(("workload", "algorithm"), SMALL, ids=str)
def test_sketches_compute_the_reference(workload: Workload, algorithm: str) -> None:
    inputs = workload.make_inputs(0)
    named = dict(zip((spec.name for spec in workload.inputs), inputs, strict=True))
    rtol, atol = workload.tolerance
    wanted = workload.reference(*inputs).astype(np.float64)
    for i, sketch in enumerate(generate(workload, H200, [algorithm]).sketches):
        (row,) = legal(sketch, 1, seed=i)
        program = make_program(workload, sketch.algorithm, sketch.trace(row))
        out = emulate(device_program(program, LIMITS), named)[workload.output.name].astype(np.float64)
        np.testing.assert_allclose(out, wanted, rtol=rtol, atol=atol, err_msg=f"{sketch.name} {sketch.values(row)}")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "tfloat32"])
def test_text_holds_the_instructions_and_compiles(dtype: str) -> None:
    workload = workloads.matmul(m=128, n=64, k=128, dtype=dtype)
    sketch = generate(workload, H200, ["direct"]).sketches[-1]
    (row,) = legal(sketch, 1)
    text = emit_program(device_program(make_program(workload, "direct", sketch.trace(row)), LIMITS))
    assert "mma.sync.aligned.m16n8k" in text and "ldmatrix.sync" in text and "load_matrices4(" in text
    compiled = compile_cubin(text, "sm_90")
    assert all(r.spill_bytes == 0 for r in compiled.resources.values())


def test_factors_of_tfloat32_are_rounded_when_they_are_loaded() -> None:
    """Each fragment is rounded once, not for each product of it."""
    workload = workloads.matmul(m=16, n=16, k=16, dtype="tfloat32")
    sketch = generate(workload, H200, ["direct"]).sketches[0]
    steps, tiles = (sketch.columns.index(c) for c in ("matmul.r.steps", "matmul.columns.tiles"))
    values = sketch.expand(rows := legal(sketch, 50))
    row = rows[(values[steps] == 1) & (values[tiles] == 2)][0]
    text = emit_program(device_program(make_program(workload, "direct", sketch.trace(row)), LIMITS))
    ptx = compile_ptx(text, "sm_90")
    count = ptx.count("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
    assert count and ptx.count("cvt.rna.tf32.f32") == count // 2 * (4 + 2 * 2)


def _mma() -> Intrinsic:
    zero = (const(0), const(0))
    operands = [Operand(name, zero, zero) for name in ("c", "a", "b")]
    return Intrinsic(MMAS[0].product.name, operands[0], (operands[1], operands[2]))


def test_a_lane_reads_what_it_holds_alone() -> None:
    lane = For(
        "l",
        const(32),
        "threadIdx.x",
        Store("y", (var("l") // 2, const(0)), load("c", [var("l") // 2, const(0)], "float32")),
    )
    with pytest.raises(BuildError, match="a thread must read the elements of c that its lane holds"):
        lower_warps(Allocate(SUMS, seq(_mma(), lane)))
    held = load("c", [var("l") // 4, var("l") % 4 * 2 + 1], "float32")
    done = lower_warps(
        Allocate(SUMS, seq(_mma(), For("l", const(32), "threadIdx.x", Store("y", (var("l"), const(0)), held))))
    )
    (store,) = (s for s in walk_stmt(done) if isinstance(s, Store))
    assert str(store.value) == "c[0, 0, 1]"


def test_what_is_no_instruction_does_not_fill_a_fragment() -> None:
    store = Store("c", (const(0), const(0)), const(1.0, "float32"))
    with pytest.raises(BuildError, match="filled by instructions or with one number"):
        lower_warps(Allocate(SUMS, seq(_mma(), store)))


def test_an_instruction_needs_the_whole_warp() -> None:
    """Emulated in a branch that some lanes skip."""
    workload = workloads.matmul(m=16, n=8, k=16, dtype="float16")
    sketch = generate(workload, H200, ["direct"]).sketches[0]
    (row,) = legal(sketch, 1)
    program = device_program(make_program(workload, "direct", sketch.trace(row)), LIMITS)
    (kernel,) = program.kernels

    def narrow(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Intrinsic) and stmt.name.startswith("mma_"):
            return For("some", const(16), "threadIdx.x", stmt)
        if isinstance(stmt, Seq):
            return Seq(tuple(narrow(s) for s in stmt.body))
        return replace(stmt, body=narrow(stmt.body)) if isinstance(stmt, (For, Allocate)) else stmt

    object.__setattr__(kernel, "body", narrow(kernel.body))
    inputs = dict(zip((s.name for s in workload.inputs), workload.make_inputs(0), strict=True))
    with pytest.raises(DivergenceError, match="reached by all threads of a warp"):
        emulate(program, inputs)
