"""Products of tile registers (AMX): right in the interpreter, their instructions in assembly, refused without them.

None of the machines that the tests run on has them, so that no kernel is run.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from search_space import te, workloads
from search_space.intrinsics import AMX_BF16, AMX_INT8
from search_space.ir.stmt import Intrinsic, LoopProgram, walk_stmt
from search_space.lower import lower
from search_space.schedule.intrinsics import TensorIntrin
from search_space.space import generate
from targets import registry
from targets.base import BuildError, RunError
from targets.cpu.export import LINK_FLAGS
from tests.interpreter import interpret

KINDS = {"tdpbf16ps": (AMX_BF16, "bfloat16", "bfloat16", "float32"), "tdpbusd": (AMX_INT8, "uint8", "int8", "int32")}


def product(intrinsic: TensorIntrin, left: str, right: str, out: str, padding: int = 0) -> LoopProgram:
    """(16, 32 * pairs) times (32 * pairs, 16), operands in pairs or fours; rows are `padding` longer."""
    pairs = intrinsic.extents[-1]
    a = te.placeholder((16, 32, pairs + padding), left, "a")
    b = te.placeholder((32, 16, pairs), right, "b", constant=True)
    r, p = te.reduce_axis((0, 32), "r"), te.reduce_axis((0, pairs), "p")
    c = te.compute(
        (16, 16), lambda i, j: te.sum(a[i, r, p].astype(out) * b[r, j, p].astype(out), axis=[r, p]), name="c"
    )
    s = te.create_schedule(c.op)
    (i, j), (k, within) = s[c].op.axis, s[c].op.reduce_axis
    (io, ii), (jo, ji), (ko, ki) = s[c].split(i, 16), s[c].split(j, 16), s[c].split(k, 16)
    s[c].reorder(io, jo, ko, ii, ji, ki, within)
    s[c].tensorize(ii, intrinsic)
    return lower(s.state)


@pytest.mark.parametrize("name", KINDS)
def test_the_interpreter_computes_what_an_instruction_means(name: str) -> None:
    program = product(*KINDS[name])
    rng, (_, left, _, _) = np.random.default_rng(0), KINDS[name]
    shapes = [tuple(int(n.value) for n in b.shape) for b in program.inputs]
    if left == "bfloat16":
        arrays = [rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes]
    else:
        arrays = [rng.integers(0, 256, shapes[0], np.uint8), rng.integers(-128, 128, shapes[1], np.int8)]
    found = interpret(program, dict(zip("ab", arrays, strict=True)))["c"]
    wide = [array.astype(np.float64) for array in arrays]
    np.testing.assert_allclose(found, np.einsum("irp,rjp->ij", *wide), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_tiles_are_loaded_multiplied_and_stored(name: str) -> None:
    target = registry.get("cpu:sapphirerapids")
    module = target.build(product(*KINDS[name]))
    text = target.machine.emit_assembly(llvm.parse_assembly(module.llvm_ir))
    body = re.sub(r"(%r\w+|%tmm\d|\(.*?\))", "", text[text.index("ldtilecfg") - 1 : text.index("tilerelease")])
    tiles = [line.split()[0] for line in body.splitlines() if re.match(r"\s+(ldtile|tile|tdp)", line)]
    assert tiles == ["ldtilecfg", "tileloadd", "tileloadd", "tileloadd", name, "tilestored"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="cc is missing")
def test_a_shared_object_asks_for_tiles_as_it_is_loaded(tmp_path: Path) -> None:
    module = registry.get("cpu:sapphirerapids").build(product(*KINDS["tdpbf16ps"]))
    (tmp_path / "k.o").write_bytes(module.object_code)
    subprocess.run(["cc", *LINK_FLAGS, "-o", "k.so", "k.o"], cwd=tmp_path, check=True)
    (tmp_path / "empty.c").write_text("")
    subprocess.run(["cc", *LINK_FLAGS, "-o", "empty.so", "empty.c"], cwd=tmp_path, check=True)
    sizes = {}
    for library in ("k.so", "empty.so"):
        said = subprocess.run(["readelf", "-d", library], cwd=tmp_path, check=True, capture_output=True, text=True)
        sizes[library] = int(re.search(r"INIT_ARRAYSZ\)\s+(\d+)", said.stdout)[1])
    assert sizes["k.so"] == sizes["empty.so"] + 8


def test_where_there_are_no_tiles_they_are_refused() -> None:
    program = product(*KINDS["tdpbf16ps"])
    with pytest.raises(BuildError, match="must run on a processor with amx-bf16"):
        registry.get("cpu:znver4").build(program)
    if "amx-bf16" not in registry.get("cpu").hardware.features:
        with pytest.raises(RunError, match="must run on Linux and on a processor with AMX"):
            registry.get("cpu").load(registry.get("cpu:sapphirerapids").build(program))


def test_operands_that_lie_otherwise_are_refused() -> None:
    program = product(*KINDS["tdpbf16ps"], padding=1)
    with pytest.raises(BuildError, match="rows of a tile must lie in memory one by one"):
        registry.get("cpu:sapphirerapids").build(program)


def test_no_sketch_uses_them() -> None:
    hardware = registry.get("cpu:sapphirerapids").hardware
    assert {"amx-bf16", "amx-int8"} <= set(hardware.features)
    for dtype in ("bfloat16", "int8"):
        for sketch in generate(workloads.matmul(m=64, n=64, k=64, dtype=dtype), hardware).sketches:
            used = {n.name for n in walk_stmt(sketch.program.body) if isinstance(n, Intrinsic)}
            assert used and not any(name.startswith("amx") for name in used)
