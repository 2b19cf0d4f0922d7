"""Reductions across threads: shuffles, sums of warps, rows of any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from search_space.ir.expr import const, var
from search_space.ir.stmt import Allocate, Store, seq
from targets.base import BuildError
from targets.cuda.nvrtc import compile_cubin
from targets.cuda.program import DeviceProgram
from targets.cuda.program_text import emit_program
from tests.targets.cuda.emulator import RaceError, emulate
from tests.targets.cuda.programs import at, buffer, loop, make_device_program, without_each_barrier

X, Y = var("x"), var("y")
IDENTITY = {"sum": 0.0, "max": float("-inf")}


def rows(count: int, columns: int, reducer: str = "sum", dtype: str = "float32", threads_y: int = 1) -> DeviceProgram:
    """out[y, x] = in[y, x] + (the reduction of row y)."""
    total = buffer("total", threads_y, dtype=dtype, scope="shared")
    row = var("b") * threads_y + Y
    body = Allocate(
        total,
        seq(
            loop(
                "y",
                threads_y,
                "threadIdx.y",
                Store("total", (Y,), const(IDENTITY[reducer], dtype)),
                loop("x", columns, "threadIdx.x", Store("total", (Y,), at("in", row, X, dtype=dtype), reducer)),
            ),
            loop(
                "y",
                threads_y,
                "threadIdx.y",
                loop(
                    "x",
                    columns,
                    "threadIdx.x",
                    Store("out", (row, X), at("in", row, X, dtype=dtype) + at("total", Y, dtype=dtype)),
                ),
            ),
        ),
    )
    params = [buffer(name, count, columns, dtype=dtype) for name in ("in", "out")]
    return make_device_program(loop("b", count // threads_y, "blockIdx.x", body), *params, outputs=("out",))


@pytest.mark.parametrize("reducer", ["sum", "max"])
@pytest.mark.parametrize(
    ("columns", "threads_y"), [(2, 4), (8, 2), (32, 1), (32, 4), (64, 2), (256, 2), (1024, 1), (7, 4), (33, 2)]
)
def test_rows_of_any_length(columns: int, threads_y: int, reducer: str) -> None:
    program = rows(8, columns, reducer, threads_y=threads_y)
    data = np.random.default_rng(0).uniform(-1, 1, (8, columns)).astype(np.float32)
    data[3, columns // 2] = np.nan
    total = data.sum(1, keepdims=True) if reducer == "sum" else data.max(1, keepdims=True)
    np.testing.assert_allclose(emulate(program, {"in": data})["out"], data + total, rtol=1e-5, atol=1e-5)


def test_a_row_of_a_warp_takes_five_shuffles_and_one_barrier() -> None:
    program = rows(8, 32, threads_y=4)
    text = emit_program(program)
    assert text.count("__shfl_xor_sync(0xffffffffu, ") == 5
    assert program.kernels[0].barriers == 1
    compile_cubin(text, "sm_90")


@pytest.mark.parametrize("columns", [7, 256])
def test_every_barrier_prevents_a_race(columns: int) -> None:
    program = rows(8, columns, threads_y=2)
    data = np.random.default_rng(0).uniform(-1, 1, (8, columns)).astype(np.float32)
    found = 0
    for mutant in without_each_barrier(program):
        found += 1
        with pytest.raises(RaceError):
            emulate(mutant, {"in": data})
    assert found >= 2


def test_16_bit_rows_are_added_up_by_one_thread() -> None:
    program = rows(4, 32, dtype="float16")
    assert "__shfl" not in emit_program(program)
    data = np.random.default_rng(0).integers(-4, 4, (4, 32)).astype(np.float16)
    np.testing.assert_array_equal(emulate(program, {"in": data})["out"], data + data.sum(1, keepdims=True))


def test_reductions_along_other_axes_of_a_block_are_refused() -> None:
    zero = const(0)
    down = loop("y", 8, "threadIdx.y", Store("out", (zero,), at("in", Y), "sum"))
    with pytest.raises(BuildError, match="must run along threadIdx.x, but out is reduced along threadIdx.y"):
        make_device_program(down, buffer("in", 8), buffer("out", 1), outputs=("out",))
    some = loop("x", 8, "threadIdx.x", Store("out", (zero,), at("in", X), "sum"))
    wider = loop("z", 16, "threadIdx.x", Store("out", (zero,), const(0.0, "float32")))
    with pytest.raises(BuildError, match="must run over all of a block's 16 along threadIdx.x, but loop x has 8"):
        make_device_program(
            loop("b", 1, "blockIdx.x", wider, some), buffer("in", 8), buffer("out", 1), outputs=("out",)
        )


def test_copies_in_front_of_a_sum_are_no_loops_of_it() -> None:
    """One term: no loop is left around the sum of each thread, which keeps its initial value."""
    tile, total = buffer("tile", 32, scope="shared"), buffer("total", 1, scope="local")
    fill = loop("z", 32, "threadIdx.x", Store("tile", (var("z"),), at("in", var("z"))))
    add = Store("total", (const(0),), at("tile", const(31) - X), "sum")
    body = Allocate(
        total,
        seq(
            Store("total", (const(0),), const(0.0, "float32")),
            Allocate(tile, seq(fill, add)),
            Store("out", (X,), at("total", const(0))),
        ),
    )
    program = make_device_program(
        loop("x", 32, "threadIdx.x", body), buffer("in", 32), buffer("out", 32), outputs=("out",)
    )
    data = np.arange(32, dtype=np.float32)
    np.testing.assert_array_equal(emulate(program, {"in": data})["out"], data[::-1])
