"""Warpgroups: emulated by descriptors in the bytes of shared memory, what is forgotten found, and their text."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from search_space import workloads
from search_space.dtypes import numpy_dtype
from search_space.ir.expr import const
from search_space.ir.stmt import Allocate, Barrier, For, Intrinsic, Seq, Stmt, walk_stmt
from search_space.lower.blocks import BULK
from search_space.schedule.steps import Pragma
from search_space.schedule.trace import Trace
from search_space.space import Sketch, generate, make_program
from search_space.workloads import Workload
from targets.base import BuildError
from targets.cuda.hardware import own_arch
from targets.cuda.kernel import CudaKernel
from targets.cuda.kernels import device_program
from targets.cuda.nvrtc import compile_cubin, compile_ptx
from targets.cuda.program import DeviceProgram
from targets.cuda.program_text import emit_program
from targets.cuda.target import get_target
from targets.cuda.warpgroup_text import DESCRIPTOR
from targets.cuda.warpgroups import COMMIT, FENCE, WAIT, encode, lower_warpgroups
from tests.gpu.candidates import legal
from tests.gpu.test_warpgroup import HOPPER, SMALL, sketches
from tests.targets.cuda.emulator import DivergenceError, RaceError, emulate, memory, warpgroups
from tests.targets.cuda.emulator.races import exchange
from tests.targets.cuda.emulator.warpgroups import decode
from tests.targets.cuda.fake_device import FakeDevice
from tests.targets.cuda.on_host import HostPrograms
from tests.targets.cuda.programs import with_body

MATMUL = workloads.matmul(m=120, n=128, k=320, dtype="float16")
LIMITS = HOPPER.gpu
assert LIMITS is not None


def make_device_program(workload: Workload, sketch: Sketch, seed: int = 0, name: str = "kernel") -> DeviceProgram:
    (row,) = legal(sketch, 1, seed=seed)
    assert LIMITS is not None
    return device_program(make_program(workload, sketch.algorithm, sketch.trace(row)), LIMITS, name)


def name_inputs(workload: Workload) -> dict[str, np.ndarray]:
    return dict(zip((s.name for s in workload.inputs), workload.make_inputs(0), strict=True))


def right(workload: Workload, out: np.ndarray) -> bool:
    rtol, atol = workload.tolerance
    wanted = workload.reference(*workload.make_inputs(0)).astype(np.float64)
    return bool(np.allclose(out.astype(np.float64), wanted, rtol=rtol, atol=atol))


@cache
def product(stages: int) -> DeviceProgram:
    """A kernel of two warpgroups with so many tiles, whose loop runs oftener than that."""
    (sketch,) = (s for s in of_every_width(MATMUL) if s.name == f"direct:wgmma128/{stages}")
    rows = legal(sketch, 20)
    groups = sketch.expand(rows)[sketch.columns.index("matmul.rows.warpgroups")]
    assert LIMITS is not None
    return device_program(make_program(MATMUL, "direct", sketch.trace(rows[groups == 2][0])), LIMITS)


@cache
def of_every_width(workload: Workload) -> list[Sketch]:
    """The sketches of every instruction and every number of tiles that threads fill, whose reductions are not split."""
    found = generate(workload, HOPPER, ["direct"]).sketches
    return [s for s in found if s.name.startswith("direct:wgmma") and BULK not in s.name]


# ---------------------------------------------------------------------- results
@pytest.mark.parametrize(("workload", "algorithm"), SMALL, ids=str)
def test_sketches_compute_the_reference(workload: Workload, algorithm: str) -> None:
    for i, sketch in enumerate(sketches(workload, algorithm)[:2]):
        program = make_device_program(workload, sketch, i)
        assert right(workload, emulate(program, name_inputs(workload))[workload.output.name]), (
            sketch.name,
            str(program),
        )


def test_every_number_of_tiles_and_every_width(tmp_path: Path) -> None:
    """Emulated, and the text itself on the host: its descriptors find in its shared memory what its copies left."""
    programs = []
    for i, sketch in enumerate(of_every_width(MATMUL)):
        program = make_device_program(MATMUL, sketch, i, f"k{i}")
        assert right(MATMUL, emulate(program, name_inputs(MATMUL))[MATMUL.output.name]), (sketch.name, str(program))
        programs.append(program)
    some = [programs[0], programs[-1]]
    host = HostPrograms(some, tmp_path)
    for program in some:
        arrays = {**name_inputs(MATMUL), "matmul": np.zeros(MATMUL.output.shape, numpy_dtype("float32"))}
        host.run(program, arrays)
        assert right(MATMUL, arrays["matmul"]), str(program)


# ---------------------------------------------------------------------- layouts
@pytest.mark.parametrize("across", [False, True])
def test_descriptors_find_elements_where_stores_put_them(across: bool) -> None:
    """Tiles within a matrix (rows, 64 columns a block) that is stored as swizzled buffers are."""
    rows, begin = 128, 3072
    for row, column in ((0, 0), (64, 0), (64, 48), (16, 0)) if not across else ((0, 0), (16, 0), (112, 64)):
        start = (column // 64 * rows + row) * 64 + column % 64
        bits = np.array([encode(begin + 2 * start, rows * 128 if across else 16, 1024)])
        extent = 128 if across and column == 0 else 64
        (found,) = decode(bits, extent, across)
        x, k = np.indices(found.shape)
        i, j = (row + k, column + x) if across else (row + x, column + k)
        place = (j // 64 * rows + i) * 64 + j % 64
        np.testing.assert_array_equal((found - begin) // 2, exchange(place))


def _canonical(x: int, k: int, across: bool, leading: int, stride: int) -> int:
    """Byte of an element by CUTLASS's canonical layouts of 16-bit elements (T = 8 of them), Swizzle<3, 4, 3> on top.

    K-major ((8, m), (T, 2)) : ((8 T, SBO), (1, T)); MN-major ((T, 8, m), (8, k)) : ((1, T, LBO), (8 T, SBO)).
    """
    if across:
        place = 2 * (x % 8 + x // 8 % 8 * 8) + x // 64 * leading + 2 * 64 * (k % 8) + k // 8 * stride
    else:
        place = 2 * 64 * (x % 8) + x // 8 * stride + 2 * (k % 8) + 2 * 8 * (k // 8)
    return place ^ (place >> 7 & 7) << 4


@pytest.mark.parametrize("across", [False, True])
def test_descriptors_mean_the_canonical_layouts(across: bool) -> None:
    """Bits as the PTX ISA numbers them, put together here by themselves."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        begin, leading, stride = (int(rng.integers(1, 64)) * 1024 for _ in range(3))
        bits = begin // 16 | leading // 16 << 16 | stride // 16 << 32 | 1 << 62
        assert encode(begin, leading, stride) == bits
        (found,) = decode(np.array([bits]), 128, across)
        for x, k in rng.integers((0, 0), (128, 16), (20, 2)).tolist():
            assert found[x, k] == begin + _canonical(x, k, across, leading, stride)


def test_the_texts_descriptors_are_those_bits(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("running cuda text on the host needs g++")
    head = "#define __device__\n#define __forceinline__\n"
    head += "static unsigned long long __cvta_generic_to_shared(const void* p) { return (unsigned long long)p; }\n"
    entry = 'extern "C" Tile bits(Tile at, unsigned l, unsigned s) { return matrix_descriptor((void*)at, l, s); }\n'
    (tmp_path / "bits.cpp").write_text(head + DESCRIPTOR + entry)
    command = [compiler, "-shared", "-fPIC", str(tmp_path / "bits.cpp"), "-o", str(tmp_path / "bits.so")]
    subprocess.run(command, check=True)
    bits = ctypes.CDLL(str(tmp_path / "bits.so")).bits
    bits.restype, bits.argtypes = ctypes.c_uint64, (ctypes.c_uint64, ctypes.c_uint, ctypes.c_uint)
    rng = np.random.default_rng(0)
    for _ in range(50):
        begin, leading, stride = (int(n) * 16 for n in rng.integers(1, 1 << 14, 3))
        assert bits(begin, leading, stride) == begin // 16 | leading // 16 << 16 | stride // 16 << 32 | 1 << 62


def test_exchanging_parts_is_its_own_reverse_and_spreads_columns_over_banks() -> None:
    place = np.arange(4096)
    np.testing.assert_array_equal(exchange(exchange(place)), place)
    column = exchange(np.arange(8) * 64 + 8)  # the same part of eight rows
    assert len(set(column % 64 // 8)) == 8


@pytest.mark.parametrize(
    "wrong",
    [
        lambda place, leading, stride: encode(place, leading, 2 * stride),
        lambda place, leading, stride: encode(place, leading // 2, stride),
        lambda place, leading, stride: encode(place + 32, leading, stride),
    ],
)
def test_a_wrong_descriptor_gives_wrong_numbers(wrong: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    program = product(2)
    monkeypatch.setattr(warpgroups, "encode", wrong)
    with suppress(IndexError, RaceError):  # where it reads past the tile, or what nobody has written yet
        assert not right(MATMUL, emulate(program, name_inputs(MATMUL))["matmul"])


def test_a_wrong_place_of_what_is_stored_gives_wrong_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "exchange", lambda place: place)
    assert not right(MATMUL, emulate(product(2), name_inputs(MATMUL))["matmul"])


def test_tiles_are_whole_blocks() -> None:
    """Rows of 64 elements, eight at a time."""
    body = product(2).program.body

    def narrow(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Allocate) and stmt.buffer.name == "a.shared":
            stmt = replace(stmt, buffer=replace(stmt.buffer, pitches=(72, 1)))
        return replace(stmt, body=narrow(stmt.body)) if isinstance(stmt, (For, Allocate)) else rest(stmt)

    def rest(stmt: Stmt) -> Stmt:
        return Seq(tuple(narrow(s) for s in stmt.body)) if isinstance(stmt, Seq) else stmt

    with pytest.raises(BuildError, match="a tile of a warpgroup must be whole blocks of 8 rows of 64 in shared memory"):
        lower_warpgroups(narrow(body))


# ---------------------------------------------------------------------- what is forgotten
def mutants(program: DeviceProgram, change: Callable[[Stmt], Stmt | None]) -> Iterator[DeviceProgram]:
    """The program with each statement in turn that `change` has something else for."""
    (kernel,) = program.kernels
    count = sum(change(n) is not None for n in walk_stmt(kernel.body))
    assert count
    for chosen in range(count):
        left = [chosen]

        def change_one(stmt: Stmt, left: list[int] = left) -> Stmt:
            if isinstance(stmt, Seq):
                return Seq(tuple(change_one(s) for s in stmt.body))
            if isinstance(stmt, (For, Allocate)):
                return replace(stmt, body=change_one(stmt.body))
            other = change(stmt)
            if other is None:
                return stmt
            left[0] -= 1
            return other if left[0] == -1 else stmt

        yield with_body(program, kernel, change_one(kernel.body))


NOTHING = Seq(())


def without(name: str) -> Callable[[Stmt], Stmt | None]:
    def change(stmt: Stmt) -> Stmt | None:
        return NOTHING if isinstance(stmt, Intrinsic) and stmt.name.partition(":")[0] == name else None

    return change


def _no_barrier(stmt: Stmt) -> Stmt | None:
    return NOTHING if isinstance(stmt, Barrier) else None


def _no_proxy(stmt: Stmt) -> Stmt | None:
    return replace(stmt, proxy=False) if isinstance(stmt, Barrier) else None


def _late(stmt: Stmt) -> Stmt | None:
    """Waits for one group less."""
    if not isinstance(stmt, Intrinsic) or stmt.name.partition(":")[0] != WAIT:
        return None
    return replace(stmt, name=f"{WAIT}:{int(stmt.name.partition(':')[2]) + 1}")


def _impatient(stmt: Stmt) -> Stmt | None:
    """Lets one more group of copies be under way."""
    return replace(stmt, pending=stmt.pending + 1) if isinstance(stmt, Barrier) and stmt.pending is not None else None


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_no_barrier, "with no barrier in between|must be fenced|still multiplies"),
        (_no_proxy, "what tensor cores read must be fenced after it was written"),
        (_impatient, "still copies|must be fenced"),
        (without(FENCE), "must be fenced after it was written, before products add to it"),
        (without(COMMIT), "must not be read before|still multiplies"),
        (without(WAIT), "must not be read before|still multiplies|no barrier in between"),
        (_late, "must not be read before|still multiplies|no barrier in between"),
    ],
    ids=["barrier", "proxy", "copies", "fence", "commit", "wait", "late"],
)
def test_what_is_left_out_is_found(change: Callable[[Stmt], Stmt | None], message: str, stages: int) -> None:
    program, given = product(stages), name_inputs(MATMUL)
    for mutant in mutants(program, change):
        with pytest.raises(RaceError, match=message):
            emulate(mutant, given)


def test_loops_that_are_not_pipelined_get_their_barriers_derived() -> None:
    """A tile is filled again when nobody multiplies it any more."""
    sketch = of_every_width(MATMUL)[0]
    (row,) = legal(sketch, 1)
    trace = Trace(tuple(s for s in sketch.trace(row).steps if not isinstance(s, Pragma)))
    assert LIMITS is not None
    program = device_program(make_program(MATMUL, "direct", trace), LIMITS)
    assert program.kernels[0].barriers == 2
    assert right(MATMUL, emulate(program, name_inputs(MATMUL))["matmul"])
    for change in (_no_barrier, without(WAIT)):
        for mutant in mutants(program, change):
            with pytest.raises(RaceError):
                emulate(mutant, name_inputs(MATMUL))


def test_an_instruction_needs_the_whole_warpgroup() -> None:
    program, given = product(2), name_inputs(MATMUL)

    def narrow(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Intrinsic) and stmt.name.startswith("wgmma_m64"):
            return For("some", const(64), "threadIdx.x", stmt)
        return None

    with pytest.raises(DivergenceError, match="reached by all threads of a warpgroup"):
        emulate(next(mutants(program, narrow)), given)


# ---------------------------------------------------------------------- text
@pytest.mark.parametrize(("dtype", "kind", "name"), [("float16", "f16", "128/4"), ("bfloat16", "bf16", "256/3")])
def test_text_compiles_and_products_are_not_made_to_wait(dtype: str, kind: str, name: str) -> None:
    """The assembler says so where it must serialise products, or wait for them by itself."""
    workload = workloads.matmul(m=256, n=256, k=512, dtype=dtype)
    (sketch,) = (s for s in of_every_width(workload) if s.name == f"direct:wgmma{name}")
    text = emit_program(make_device_program(workload, sketch))
    found = compile_cubin(text, "sm_90a")
    assert found.notes == () and all(r.spill_bytes == 0 for r in found.resources.values())
    ptx = compile_ptx(text, "sm_90a")
    assert f"wgmma.mma_async.sync.aligned.m64n{name[:-2]}k16.f32.{kind}.{kind}" in ptx
    for part in ("fence.sync.aligned", "commit_group.sync.aligned", "wait_group.sync.aligned"):
        assert f"wgmma.{part}" in ptx
    assert "fence.proxy.async.shared::cta" in ptx and "cp.async." in ptx


def test_products_that_must_wait_are_told() -> None:
    text = emit_program(product(2))
    waiting = "wgmma_wait<0>();"
    assert waiting in text
    assert any("C7517" in note for note in compile_cubin(text.replace(waiting, ""), "sm_90a").notes)


def test_code_for_one_architecture_alone_uses_all_of_it() -> None:
    assert [own_arch(arch) for arch in ("sm_80", "sm_90", "sm_90a")] == ["sm_80", "sm_90a", "sm_90a"]


def test_plain_sm_90_does_not_take_them() -> None:
    with pytest.raises(BuildError, match="NVRTC must accept the emitted code"):
        compile_cubin(emit_program(product(2)), "sm_90")


def test_the_target_builds_modules_and_runs_them() -> None:
    sketch = of_every_width(MATMUL)[-1]
    (row,) = legal(sketch, 1)
    target, program = get_target("cuda:sm_90a"), make_program(MATMUL, "direct", sketch.trace(row))
    module = target.build(program)
    (launch,) = module.metadata["launches"]["kernels"]
    assert launch["dynamic_shared_bytes"] == launch["shared_bytes"] and launch["block"][0] == 128
    assert module.metadata["notes"] == [] and "registers" in target.stages["resources"](module)
    device = FakeDevice(target.device_program(program))
    assert right(MATMUL, CudaKernel(module, device).bind(MATMUL.make_inputs(0)).run())
