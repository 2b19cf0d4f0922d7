"""The CUDA text itself computes the reference: it is compiled for the host and run there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from search_space import workloads
from search_space.dtypes import numpy_dtype
from search_space.ir.expr import var
from search_space.ir.stmt import Store
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets.cuda.emit import KernelText
from targets.cuda.kernels import device_program
from targets.cuda.program import DeviceProgram
from targets.cuda.program_text import emit_program
from tests.golden.cases import HARDWARE
from tests.gpu.candidates import legal
from tests.gpu.machines import H200
from tests.search_space.operators.cases import SMALL
from tests.targets.cuda.on_host import HostPrograms
from tests.targets.cuda.programs import LIMITS, at, buffer, loop, make_device_program

SOME: tuple[Workload, ...] = (
    *SMALL[::3],
    workloads.matmul(29, 24, 20),
    workloads.softmax(rows=5, columns=40),
    workloads.layer_norm(rows=3, columns=100),
    workloads.reduce((6, 70), 1, "max"),
)


def make_programs(workload: Workload, number: int) -> list[DeviceProgram]:
    out = []
    for i, sketch in enumerate(generate(workload, H200).sketches):
        (row,) = legal(sketch, 1, seed=number + i)
        program = make_program(workload, sketch.algorithm, sketch.trace(row))
        out.append(device_program(program, LIMITS, f"k{number}_{i}"))
    return out


def check_on_host(workload: Workload, program: DeviceProgram, host: HostPrograms) -> None:
    given = workload.make_inputs(0)
    arrays = {spec.name: np.ascontiguousarray(a) for spec, a in zip(workload.inputs, given, strict=True)}
    output = workload.output
    arrays[output.name] = np.zeros(output.shape, numpy_dtype(output.dtype))
    host.run(program, arrays)
    rtol, atol = workload.tolerance
    wanted = workload.reference(*given).astype(np.float64)
    np.testing.assert_allclose(
        arrays[output.name].astype(np.float64), wanted, rtol=rtol, atol=atol, err_msg=str(program)
    )


@pytest.mark.parametrize("part", range(4))
def test_text_computes_the_reference(part: int, tmp_path: Path) -> None:
    some = SOME[part::4]
    programs = [(w, p) for i, w in enumerate(some) for p in make_programs(w, i)]
    host = HostPrograms([p for _, p in programs], tmp_path)
    for workload, program in programs:
        check_on_host(workload, program, host)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "tfloat32"])
def test_tensor_cores_hold_fragments_as_the_instructions_say(dtype: str, tmp_path: Path) -> None:
    """The reference is `ldmatrix` and `mma.sync`, written down from the PTX manual, lane by lane."""
    workload = workloads.matmul(48, 40, 64, dtype=dtype)
    programs = [p for p in make_programs(workload, 0) if "mma.sync" in emit_program(p)]
    assert programs
    host = HostPrograms(programs, tmp_path)
    for program in programs:
        check_on_host(workload, program, host)


@pytest.mark.parametrize(("dtype", "load"), [("float16", "load_transposed4("), ("int8", "load_matrices4(b_")])
def test_neighbouring_fragments_are_loaded_together(dtype: str, load: str, tmp_path: Path) -> None:
    workload = workloads.matmul(32, 64, 64, dtype=dtype)
    sketch = next(s for s in generate(workload, H200, ["direct"]).sketches if s.name == "direct:tensor/2")
    rows = [row for row in legal(sketch, 200) if sketch.values(row)["matmul.columns.tiles"] in (2, 4)][:2]
    programs = [
        device_program(make_program(workload, "direct", sketch.trace(row)), LIMITS, f"pairs{i}")
        for i, row in enumerate(rows)
    ]
    assert len(programs) == 2 and all(load in emit_program(p).partition("_0(")[2] for p in programs)
    host = HostPrograms(programs, tmp_path)
    for program in programs:
        check_on_host(workload, program, host)


def test_text_of_prologues_packs_constants(tmp_path: Path) -> None:
    workload = workloads.matmul(8, 24, 12)
    sketch = next(s for s in generate(workload, HARDWARE).sketches if s.program.prologues)
    (row,) = legal(sketch, 1)
    program = device_program(make_program(workload, sketch.algorithm, sketch.trace(row)), LIMITS)
    assert program.prologues
    check_on_host(workload, program, HostPrograms([program], tmp_path))


def test_vectors_that_begin_elsewhere_than_at_their_size_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A device faults on them, where hosts do not."""
    at_one = var("t") * 4 + var("v") + 1
    copy = loop("v", 4, "vectorize", Store("y", (at_one,), at("x", at_one)))
    program = make_device_program(loop("t", 8, "threadIdx.x", copy), buffer("x", 40), buffer("y", 40))
    arrays = {"x": np.arange(40, dtype=np.float32), "y": np.zeros(40, np.float32)}
    right = HostPrograms([program], tmp_path).run(program, dict(arrays))
    np.testing.assert_array_equal(right["y"][1:33], arrays["x"][1:33])
    monkeypatch.setattr(KernelText, "width", lambda text, name, indices, loop: 4)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(AssertionError, match="kernel_0: 3"):
        HostPrograms([program], other).run(program, dict(arrays))
