"""The text of schedules, loops, C and LLVM code is what it was: a change of any is seen, and meant."""

from __future__ import annotations

from pathlib import Path

import llvmlite.binding as llvm
import pytest

from search_space.ir.stmt import LoopProgram
from targets.c.source import make_source
from targets.cpu.emit import emit_program
from targets.cpu.tensor_intrinsics import emit_vnni  # noqa: F401  (registers the emitters)
from tests.golden.cases import ATTRIBUTES, CASES, candidate, find_sketch, program
from tests.golden.compare import UPDATE, Golden
from tests.golden.test_gpu import CASES as GPU_CASES

KERNELS = ("matmul_odd", "matmul_int8_vnni")
IN_C = ("matmul_odd", "conv2d", "softmax")
TEXT = Path(__file__).parent / "text"


def sections(**parts: object) -> str:
    """Parts under headings."""
    return "\n\n".join(f"=== {name.replace('_', ' ')} ===\n{part}" for name, part in parts.items())


@pytest.mark.parametrize("name", CASES)
def test_schedule_and_loops(name: str, golden: Golden) -> None:
    workload, of = CASES[name]
    sketch = find_sketch(workload, of)
    numbers = "\n".join(f"{variable} = {value}" for variable, value in candidate(sketch).items())
    text = sections(
        workload=f"{workload.key}\n{of}",
        schedule=sketch.steps,
        loops=sketch.program,
        candidate=numbers,
        loops_of_the_candidate=program(workload, sketch),
    )
    golden.check(f"{name}.txt", text)


def llvm_text(loops: LoopProgram) -> str:
    """Functions of a program, each prologue in a module of its own."""
    parts = [("kernel", loops), *((f"pack{i}", p) for i, p in enumerate(loops.prologues))]
    return "\n".join(emit_program(part, name, ATTRIBUTES).text for name, part in parts)


@pytest.mark.parametrize("name", KERNELS)
def test_llvm_text(name: str, golden: Golden) -> None:
    workload, of = CASES[name]
    golden.check(f"{name}.ll", llvm_text(program(workload, find_sketch(workload, of))))


@pytest.mark.parametrize("name", IN_C)
def test_c_text(name: str, golden: Golden) -> None:
    workload, of = CASES[name]
    golden.check(f"{name}.c", make_source(program(workload, find_sketch(workload, of)), "kernel").text)


@pytest.mark.parametrize("name", KERNELS)
def test_llvm_text_does_not_depend_on_the_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_host(*arguments: object) -> None:
        raise AssertionError("emission must not ask for the host")

    workload, of = CASES[name]
    loops = program(workload, find_sketch(workload, of))
    before = llvm_text(loops)
    for function in ("get_host_cpu_name", "get_host_cpu_features", "get_default_triple"):
        monkeypatch.setattr(llvm, function, no_host)
    assert llvm_text(loops) == before


def test_every_file_is_compared() -> None:
    expected = {f"{name}.txt" for name in (*CASES, *GPU_CASES)} | {f"{name}.ll" for name in KERNELS}
    expected |= {f"{name}.c" for name in IN_C}
    expected |= {"vta_conv2d.txt", "matmul.cu", "matmul_pipelined.cu"}
    assert {path.name for path in TEXT.iterdir()} == expected


def test_a_difference_is_shown_with_the_way_to_update(tmp_path: Path) -> None:
    Golden(tmp_path, update=True).check("a.txt", "one\ntwo \nthree\n\n")
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\nthree\n"
    Golden(tmp_path).check("a.txt", "one\ntwo\nthree")
    with pytest.raises(AssertionError) as caught:
        Golden(tmp_path).check("a.txt", "one\n2\nthree")
    first, *diff = str(caught.value).splitlines()
    assert first == f"a.txt has changed; where that is meant: {UPDATE}"
    assert diff == ["--- golden/a.txt", "+++ now", "@@ -1,3 +1,3 @@", " one", "-two", "+2", " three"]


def test_a_file_that_is_not_there_is_a_difference(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"b.txt has changed(?s:.*)\+text"):
        Golden(tmp_path).check("b.txt", "text")
    assert not (tmp_path / "b.txt").exists()
