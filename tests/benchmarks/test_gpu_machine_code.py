"""Facts read off machine code: functions, loops, how often they run, and the bound that follows."""

from __future__ import annotations

import pytest

from benchmarks.gpu import inspect
from benchmarks.gpu.machine_code import Loop, MissingDisassembler, bound, count_work, disassemble, disassembler, read
from search_space import workloads
from search_space.space import generate
from targets.cuda.kernels import device_program
from targets.cuda.program import DeviceKernel
from targets.cuda.target import get_target
from tests.gpu.handwritten import Tiles
from tests.targets.cuda.programs import LIMITS, matmul_program

TARGET = get_target("cuda:sm_90")
TEXT = """
//--------------------- .text.first --------------------------
.text.first:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0020*/                   LDGSTS.E.BYPASS.128 [R2], desc[UR4][R4.64] ;
.L_x_0:
        /*0030*/                   LDS.128 R4, [R2] ;
        /*0040*/                   LDS.64 R8, [R3+0x10] ;
        /*0050*/                   FFMA R0, R4, R8, R0 ;
        /*0060*/                   FFMA R1, R5, R9, R1 ;
        /*0070*/              @P0  BRA `(.L_x_0) ;
        /*0080*/             @!P1  BRA `(.L_x_1) ;
        /*0090*/                   STG.E [R2.64], R0 ;
        /*00a0*/                   EXIT ;
.L_x_2:
        /*00b0*/                   BRA `(.L_x_2);
.text.second:
        /*0000*/                   EXIT ;
"""


def test_instructions_of_warpgroups_say_their_shape() -> None:
    """A quarter of one counts for each of its four warps, at the full rate of the data sheet."""
    text = TEXT.replace("FFMA R0, R4, R8, R0", "HGMMA.64x256x16.F32 R24, gdesc[UR16].tnspB, R24")
    found = bound(read(text)["first"], product(), TARGET.hardware)
    assert found.share("HGMMA") == pytest.approx(0.2)
    cycles = 2 * 64 * 256 * 16 / 4 * found.passes / (989e12 / 132 / TARGET.hardware.clock_hz)
    assert found.parts["tensor cores"] == pytest.approx(cycles / TARGET.hardware.clock_hz)


@pytest.fixture
def program() -> str:
    try:
        return disassembler()
    except MissingDisassembler:
        pytest.skip("nvidia-cuda-nvdisasm is not installed")


def product(threads: int = 4, m: int = 32) -> DeviceKernel:
    """Four steps of four products each, for every one of 2 x 2 sums of a thread."""
    tiles = Tiles((1, threads, 2), (1, 4, 2), 4, 2, 2)
    (kernel,) = device_program(matmul_program(m, 32, 16, tiles), LIMITS).kernels
    return kernel


def test_functions_and_their_loops_are_read() -> None:
    functions = read(TEXT)
    assert set(functions) == {"first", "second"} and functions["second"].instructions == ("EXIT",)
    first = functions["first"]
    assert first.loops == (Loop(1, 8), Loop(3, 7))
    assert first.count(first.loops[1]) == {"LDS.128": 1, "LDS.64": 1, "FFMA": 2, "BRA": 1}
    assert first.count(first.loops[0]) == {"BAR.SYNC.DEFER_BLOCKING": 1, "LDGSTS.E.BYPASS.128": 1, "BRA": 1}
    assert first.count() == {"LDC": 1, "STG.E": 1, "EXIT": 1, "BRA": 1}


def test_the_work_of_a_thread_is_counted() -> None:
    work = count_work(product())
    assert (work.products, work.steps, work.read) == (16 * 4, 4, 2 * 4 * 8 * 4 * 4 // 16)


def test_the_bound_follows_from_the_counts() -> None:
    """32 products of the inner loop are 32 passes; the outer one runs four times."""
    kernel = product()
    found = bound(read(TEXT)["first"], kernel, TARGET.hardware)
    assert found.loop["FFMA"] == 2 and found.passes == 32
    assert found.instruction_count == 4 + 4 * 3 + 32 * 5
    assert found.share("FFMA") == pytest.approx(0.4) and found.share("LDS") == pytest.approx(0.4)
    cycle = 1 / TARGET.hardware.clock_hz
    assert found.parts["issue"] == pytest.approx(176 / 4 * cycle)
    assert found.parts["shared memory"] == pytest.approx((32 * (4 + 2) / 2 + 4 * 4) * cycle)  # lanes in squares
    assert found.by == "shared memory" and found.seconds == found.parts["shared memory"]
    odd = bound(read(TEXT)["first"], product(threads=3, m=30), TARGET.hardware)
    assert odd.parts["shared memory"] == pytest.approx((32 * (4 + 2) + 4 * 4) * cycle)


def test_a_candidate_is_inspected(program: str) -> None:
    workload = workloads.matmul(256, 256, 64, constant_b=False)
    space = generate(workload, TARGET.hardware)
    candidate = inspect.first(space, 0)
    found = list(inspect.inspect_kernels(TARGET, space, candidate, program))
    flops = sum(2 * count_work(each.kernel).products * each.kernel.threads * each.kernel.blocks for each in found)
    assert flops >= workload.flops
    seconds = sum(each.bound.seconds for each in found)
    assert seconds > workload.flops / TARGET.hardware.peak_flops
    assert "% of fp32" in inspect.line("matmul", workload, found, TARGET)


def test_cubins_are_disassembled(program: str) -> None:
    module = TARGET.build(matmul_program(32, 32, 16))
    functions = disassemble(module.object_code, program)
    assert "FFMA" in functions["kernel_0"].count() or functions["kernel_0"].loops


def test_unknown_rows_and_architectures_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect.main(["--rows", "matmul_7"]) == 2
    assert "`--rows` must be among" in capsys.readouterr().err
    assert inspect.main(["--arch", "sm_42"]) == 2
    assert "`target` cuda must be followed by one of sm_80, " in capsys.readouterr().err
