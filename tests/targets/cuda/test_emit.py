"""CUDA text: a golden source, wide accesses, every dtype and function compiles for every architecture."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from search_space import workloads
from search_space.hardware import GpuLimits
from search_space.ir.expr import BITS, FLOATS, MATH, Expr, call, cast, const, maximum, minimum, select, var
from search_space.ir.stmt import Allocate, For, Intrinsic, LoopProgram, Operand, Store, seq
from search_space.space import concrete, generate
from targets.base import BuildError
from targets.cuda.hardware import GPUS
from targets.cuda.kernels import device_program
from targets.cuda.nvrtc import compile_cubin
from targets.cuda.program_text import emit_program
from tests.golden.compare import Golden
from tests.gpu.candidates import legal
from tests.gpu.handwritten import Tiles
from tests.gpu.machines import H200
from tests.targets.cuda.emulator import emulate
from tests.targets.cuda.on_host import HostPrograms
from tests.targets.cuda.programs import LIMITS, at, buffer, loop, make_device_program, matmul_program

T, V = var("t"), var("v")


def emit_text(program: LoopProgram) -> str:
    return emit_program(device_program(program, LIMITS))


def test_a_product_is_what_it_was(golden: Golden) -> None:
    golden.check("matmul.cu", emit_text(matmul_program(60, 64, 32, Tiles((1, 4, 2), (2, 4, 4), 8, 2, 4))))


def test_a_pipelined_product_is_what_it_was(golden: Golden) -> None:
    golden.check(
        "matmul_pipelined.cu", emit_text(matmul_program(60, 64, 30, Tiles((1, 4, 2), (2, 4, 4), 8, 2, 2), pipeline=3))
    )


def emit_vector(lanes: int, store: Store, *params: object, dtype: str = "float32") -> str:
    body = loop("t", 32, "threadIdx.x", loop("v", lanes, "vectorize", store))
    return emit_program(make_device_program(body, *params))


@pytest.mark.parametrize(
    ("dtype", "lanes", "width"),
    [("float32", 4, 4), ("float32", 8, 4), ("float16", 8, 8), ("int8", 16, 16), ("float32", 6, 2)],
)
def test_lanes_that_are_neighbours_are_one_access_of_16_bytes_at_most(dtype: str, lanes: int, width: int) -> None:
    x, y = buffer("x", 32 * lanes, dtype=dtype), buffer("y", 32 * lanes, dtype=dtype)
    text = emit_vector(lanes, Store("y", (T * lanes + V,), at("x", T * lanes + V, dtype=dtype)), x, y)
    assert text.count(f", {width}>*)(y + ") == text.count(f", {width}>*)(x + ") == lanes // width
    compile_cubin(text, "sm_90")


def test_lanes_that_are_not_aligned_are_single_accesses() -> None:
    text = emit_vector(4, Store("y", (T * 4 + V,), at("x", T * 4 + V + 1)), buffer("x", 130), buffer("y", 128))
    assert ">*)(x +" not in text and ", 4>*)(y + " in text


def test_lanes_under_a_condition_of_their_own_are_single_accesses() -> None:
    inside = select(T * 4 + V < 127, at("x", T * 4 + V), const(0.0, "float32"))
    text = emit_vector(4, Store("y", (T * 4 + V,), inside), buffer("x", 127), buffer("y", 128))
    assert ">*)(x +" not in text and ", 4>*)(y + " in text
    guarded = emit_vector(
        4, Store("y", (T * 4 + V,), at("x", T), None, T * 4 + V < 127), buffer("x", 32), buffer("y", 127)
    )
    assert guarded.count("if (") == 1 and ">*)(y +" not in guarded


def test_a_condition_of_all_lanes_is_asked_once_and_nothing_outside_is_read() -> None:
    inside = select(T < 31, at("x", T * 4 + V), const(0.0, "float32"))
    text = emit_vector(4, Store("y", (T * 4 + V,), inside), buffer("x", 124), buffer("y", 128))
    assert "if ((t < 31)) v" in text and ", 4>*)(x + " in text


def test_a_load_under_a_condition_of_all_lanes_is_one_access() -> None:
    zero = const(0.0, "float32")
    moved = select(T < 31, at("x", T * 4 + V), zero) * at("w", V)
    text = emit_vector(4, Store("y", (T * 4 + V,), moved), buffer("x", 124), buffer("w", 4), buffer("y", 128))
    assert text.count(", 4>*)(x + ") == 1 and "x[(" not in text
    assert all(len(re.findall(rf"\b{name}\b", text)) > 2 for name in re.findall(r"> (v\d+)\b", text))


def test_a_load_under_two_conditions_is_not_left_out_for_either(tmp_path: Path) -> None:
    x, zero = at("x", T * 4 + V), const(0.0, "float32")
    values = {
        select(T < 31, x, zero) + select(T < 30, x, zero): False,
        select(T < 31, x, x * 2): False,
        select(T < 31, x, zero) + select(V < 2, x, zero): False,
        select(V < 2, select(T < 31, x, zero), zero): False,
        select(T < 31, x, zero) + select(T < 31, x, zero) * 2: True,
        select(T < 31, x, zero) + x: True,
    }
    programs = []
    for number, (value, wide) in enumerate(values.items()):
        body = loop("t", 32, "threadIdx.x", loop("v", 4, "vectorize", Store("y", (T * 4 + V,), value)))
        loops = LoopProgram("test", (buffer("x", 128), buffer("y", 128)), body, ("y",))
        programs.append(device_program(loops, LIMITS, f"case{number}"))
        assert (", 4>*)(x + " in emit_program(programs[-1])) == wide, value
    host = HostPrograms(programs, tmp_path)
    given = np.random.default_rng(0).uniform(1, 2, 128).astype(np.float32)
    for program in programs:
        arrays = {"x": given, "y": np.zeros(128, np.float32)}
        wanted = emulate(program, arrays)["y"]
        host.run(program, arrays)
        np.testing.assert_array_equal(arrays["y"], wanted, err_msg=str(program))


def test_copies_of_single_lanes_read_nothing_besides() -> None:
    space = generate(workloads.matmul(64, 64, 64, constant_b=False), H200)
    texts = [
        emit_program(device_program(concrete(sketch, sketch.values(row)), LIMITS))
        for sketch in space.sketches
        if sketch.name.endswith("/double")
        for row in legal(sketch, 3)
    ]
    assert any("copy_async<4>" in text for text in texts)
    for text in texts:
        for name in re.findall(r"> (v\d+)\b", text):
            assert len(re.findall(rf"\b{name}\b", text)) > 1, name


def test_more_shared_memory_than_can_be_declared_is_asked_for_at_the_launch() -> None:
    tile = buffer("tile", 20000, scope="shared")
    body = loop(
        "t",
        64,
        "threadIdx.x",
        Allocate(tile, seq(Store("tile", (T,), at("x", T)), Store("y", (T,), at("tile", 63 - T)))),
    )
    program = make_device_program(body, buffer("x", 64), buffer("y", 64))
    text = emit_program(program)
    assert "extern __shared__" in text and program.kernels[0].shared_bytes == 80000
    assert compile_cubin(text, "sm_90").resources["kernel_0"].shared_bytes == 0


def test_indices_beyond_2_to_the_31_are_wide() -> None:
    wide = loop(
        "b",
        1 << 24,
        "blockIdx.x",
        loop("t", 256, "threadIdx.x", Store("y", (var("b") * 256 + T,), const(1.0, "float32"))),
    )
    text = emit_program(make_device_program(wide, buffer("y", 1 << 32)))
    assert "const long long b = blockIdx.x;" in text and "256ll" in text
    compile_cubin(text, "sm_90")


def every_operation(dtype: str) -> list[Expr]:
    a, b = at("x", T, dtype=dtype), at("x", T + 1, dtype=dtype)
    found = [a + b, a - b, a * b, maximum(a, b), minimum(a, b), select(a < b, a, b), const(3, dtype) + a, -a]
    if dtype in FLOATS:
        found += [a / b, *(call(f, a) for f in MATH), const(float("inf"), dtype) + a, const(0.1, dtype) * a]
    else:
        found += [a // b, a % b]
    if dtype == "int32":
        found += [a << b, a >> const(2, dtype)]
    return found


@pytest.mark.parametrize("dtype", [d for d in BITS if d not in ("int64", "bool")])
def test_every_operation_of_every_dtype_compiles(dtype: str) -> None:
    stores = [Store("y", (T + 32 * i,), value) for i, value in enumerate(every_operation(dtype))]
    stores += [Store("y", (T,), at("x", T, dtype=dtype), r) for r in ("sum", "prod", "max", "min")]
    text = emit_program(
        make_device_program(
            loop("t", 32, "threadIdx.x", *stores),
            buffer("x", 33, dtype=dtype),
            buffer("y", 32 * len(stores), dtype=dtype),
        )
    )
    compile_cubin(text, "sm_90")


def test_every_cast_compiles() -> None:
    dtypes = [d for d in BITS if d != "int64"]
    params = [buffer(f"x_{d}", 32, dtype=d) for d in dtypes] + [buffer(f"y_{d}", 32, dtype=d) for d in dtypes]
    stores = [Store(f"y_{to}", (T,), cast(at(f"x_{d}", T, dtype=d), to)) for d in dtypes for to in dtypes]
    program = make_device_program(
        loop("t", 32, "threadIdx.x", *stores), *params, outputs=tuple(f"y_{d}" for d in dtypes)
    )
    compile_cubin(emit_program(program), "sm_90")


@pytest.mark.parametrize("arch", GPUS)
def test_every_architecture(arch: str) -> None:
    text = emit_text(matmul_program(16, 16, 32, pipeline=2))
    found = compile_cubin(text, arch)
    assert found.resources["kernel_0"].registers > 8 and found.cubin[1:4] == b"ELF"


def test_an_instruction_of_another_machine_is_refused() -> None:
    operand = Operand("y", (const(0),), (const(0),))
    with pytest.raises(BuildError, match="`intrinsic` must be one of .*warp_reduce.*, but got sgemm:1x1x1"):
        emit_program(
            make_device_program(
                For("t", const(32), "threadIdx.x", Intrinsic("sgemm:1x1x1", operand, ())), buffer("y", 1)
            )
        )


def test_launches_that_no_device_takes_are_refused() -> None:
    def expect_refusal(body: For, match: str, limits: GpuLimits = LIMITS) -> None:
        with pytest.raises(BuildError, match=match):
            make_device_program(body, buffer("x", 64), buffer("y", 64), limits=limits)

    one = Store("y", (const(0),), const(0.0, "float32"))
    expect_refusal(loop("t", 2048, "threadIdx.x", one), "threads along threadIdx.x must be at most 1024, but got 2048")
    expect_refusal(loop("t", 128, "threadIdx.z", one), "threads along threadIdx.z must be at most 64, but got 128")
    expect_refusal(
        loop("t", 64, "threadIdx.x", loop("u", 32, "threadIdx.y", one)),
        "threads of a block must be at most 1024, but got 2048",
    )
    expect_refusal(loop("b", 70000, "blockIdx.y", one), "blocks along blockIdx.y must be at most 65535, but got 70000")
    tile = Allocate(buffer("tile", 60000, scope="shared"), seq(Store("tile", (T,), at("x", T)), one))
    expect_refusal(
        loop("t", 64, "threadIdx.x", tile), "shared memory of a block must be at most 232448 bytes, but got 240000"
    )
    mine = Allocate(
        buffer("mine", 64, scope="local"),
        seq(loop("u", 64, "threadIdx.x", Store("mine", (var("u"),), at("x", var("u")))), one),
    )
    expect_refusal(loop("b", 1, "blockIdx.x", mine), "filled by threads of threadIdx.x")


@pytest.mark.parametrize("name", ["sigmoid", "float", "3x3", "a.b", "max"])
def test_names_that_mean_something_in_the_text_are_changed(name: str) -> None:
    twin = name.replace(".", "_")
    params = [buffer(n, 32) for n in dict.fromkeys((name, twin))]
    stores = [Store(b.name, (T,), call("sigmoid", maximum(at(b.name, T), 1.0))) for b in params]
    compile_cubin(
        emit_program(make_device_program(loop("t", 32, "threadIdx.x", *stores), *params, outputs=(name,))), "sm_90"
    )
