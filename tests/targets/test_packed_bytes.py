"""Vectors of bytes that are made of floats together: the same bytes as one by one, wherever they lie."""

from __future__ import annotations

import numpy as np
import pytest

from search_space import te
from search_space.ir.expr import Expr
from search_space.lower.cleanup import cleanup
from search_space.lower.lowering import lower
from search_space.tensor import Tensor
from targets import registry
from targets.base import Module
from targets.cpu.target import CpuTarget

ENDS = {"uint8": (0, 255), "int8": (-128, 127)}
LIKE = {"skylake-avx512": ("avx512bw", 16), "haswell": ("avx2", 8)}
"""Processors, the instruction set that narrows there, and the floats of a register."""
HERE = [name for name, (feature, _) in LIKE.items() if feature in registry.get("cpu").hardware.features]


def layer(rows: int, columns: int, dtype: str, zero: bool, high: float) -> list[Tensor]:
    """`clip(rint(x * scale) [+ zero])` of floats, a scale for each column."""
    x = te.placeholder((rows, columns), name="x")
    scale = te.placeholder((columns,), name="scale")
    added = te.placeholder((1,), "uint8", "zero")

    def of(i: Expr, j: Expr) -> Expr:
        whole = te.rint(x[i, j] * scale[j])
        whole = whole + added[0].astype("float32") if zero else whole
        limited = te.minimum(te.maximum(whole, float(ENDS[dtype][0])), high)
        return limited.astype("int32").astype(dtype)

    return [x, scale, *([added] if zero else []), te.compute((rows, columns), of, name="byte")]


def build_tiles(tensors: list[Tensor], target: CpuTarget, rows: int, vectors: int, lanes: int) -> Module:
    """Register tiles of rows x vectors, each written from one unrolled nest; the last rows are written twice."""
    byte = tensors[-1]
    s = te.create_schedule(byte.op)
    outer, row = s[byte].split("i", factors=(rows,), tail="clamp")
    block, vector, lane = s[byte].split("j", factors=(vectors, lanes), tail="guard")
    s[byte].reorder(outer, block, row, vector, lane)
    s[byte].unroll(row)
    s[byte].unroll(vector)
    s[byte].vectorize(lane)
    return target.build(cleanup(lower(s.state)))


def draw_floats(rows: int, columns: int, zero: bool) -> list[np.ndarray]:
    """Floats of all sizes, ties among them, and what is no number; the lowest one of those is a byte's least."""
    rng = np.random.default_rng(rows * columns)
    x = rng.integers(-1200, 1200, (rows, columns)).astype(np.float32) / 2
    x[rng.random(x.shape) < 0.1] *= np.float32(1e30)
    x.flat[:4] = [np.inf, -np.inf, 2.0**31, -(2.0**31)]
    scale = rng.choice(np.float32([1.0, 0.5, 0.37]), columns)
    return [x, scale, *([np.array([131], np.uint8)] if zero else [])]


@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("dtype", ENDS)
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize(("rows", "vectors"), [(1, 4), (4, 1), (2, 2), (3, 3), (5, 1), (1, 7), (2, 1), (1, 1)])
def test_tiles_of_all_forms_hold_the_bytes_of_numpy(name: str, dtype: str, zero: bool, rows: int, vectors: int) -> None:
    target, lanes = registry.get(f"cpu:{name}"), LIKE[name][1]
    low, high = ENDS[dtype]
    for columns in (vectors * lanes, 2 * vectors * lanes + 5):
        tensors, arrays = layer(7, columns, dtype, zero, float(high)), draw_floats(7, columns, zero)
        module = build_tiles(tensors, target, rows, vectors, lanes)
        found = target.load(module).bind(arrays, fenced=True).run()
        product = (arrays[0] * arrays[1]).astype(np.float64)
        np.testing.assert_array_equal(found, np.clip(np.rint(product) + 131 * zero, low, high).astype(dtype))
        assert ("packssdw" in module.llvm_ir) == (rows * vectors > 1)  # all but those under a mask, which stand last


@pytest.mark.parametrize("name", HERE)
def test_lower_limits_of_the_upper_end_hold(name: str) -> None:
    target, lanes = registry.get(f"cpu:{name}"), LIKE[name][1]
    arrays = draw_floats(4, 4 * lanes, False)
    module = build_tiles(layer(4, 4 * lanes, "uint8", False, 99.0), target, 1, 4, lanes)
    found = target.load(module).bind(arrays).run()
    wanted = np.clip(np.rint((arrays[0] * arrays[1]).astype(np.float64)), 0, 99).astype(np.uint8)
    np.testing.assert_array_equal(found, wanted)
    assert "packuswb" in module.llvm_ir


@pytest.mark.parametrize("name", HERE)
def test_limits_that_narrowing_does_not_have_are_kept(name: str) -> None:
    target, lanes = registry.get(f"cpu:{name}"), LIKE[name][1]
    arrays = draw_floats(4, 4 * lanes, True)
    module = build_tiles(layer(4, 4 * lanes, "uint8", True, 200.0), target, 1, 4, lanes)
    found = target.load(module).bind(arrays).run()
    wanted = np.clip(np.rint((arrays[0] * arrays[1]).astype(np.float64)) + 131, 0, 200).astype(np.uint8)
    np.testing.assert_array_equal(found, wanted)
    assert "pack" not in module.llvm_ir.replace(module.name, "")


@pytest.mark.parametrize("name", HERE)
def test_what_is_no_number_is_the_same_byte_alone_and_together(name: str) -> None:
    target, lanes = registry.get(f"cpu:{name}"), LIKE[name][1]
    arrays = [np.full((1, 4 * lanes), np.nan, np.float32), np.ones(4 * lanes, np.float32)]
    for vectors in (1, 4):
        module = build_tiles(layer(1, 4 * lanes, "uint8", False, 255.0), target, 1, vectors, lanes)
        np.testing.assert_array_equal(target.load(module).bind(arrays).run(), 0)


@pytest.mark.parametrize("name", HERE)
def test_bytes_that_are_read_again_do_not_wait(name: str) -> None:
    target, lanes = registry.get(f"cpu:{name}"), LIKE[name][1]
    x = te.placeholder((4, lanes), name="x")
    byte = te.compute((4, lanes), lambda i, j: clip_to_byte(x[i, j]), name="byte")
    twice = te.compute(
        (4, lanes), lambda i, j: byte[i, j].astype("int32") + byte[3 - i, j].astype("int32"), name="twice"
    )
    s = te.create_schedule(twice.op)
    for stage in (byte, twice):
        s[stage].unroll("i")
        s[stage].vectorize("j")
    module = target.build(cleanup(lower(s.state)))
    values = np.arange(4 * lanes, dtype=np.float32).reshape(4, lanes) * 5
    found = target.load(module).bind([values]).run()
    bytes_ = np.clip(np.rint(values), 0, 255).astype(np.int32)
    np.testing.assert_array_equal(found, bytes_ + bytes_[::-1])


def clip_to_byte(number: Expr) -> Expr:
    return te.minimum(te.maximum(te.rint(number), 0.0), 255.0).astype("int32").astype("uint8")


@pytest.mark.parametrize(
    ("name", "instructions"), [("knl", set()), ("sandybridge", set()), ("znver4", {"avx2", "avx512bw"})]
)
def test_processors_without_the_instructions_are_known(name: str, instructions: set[str]) -> None:
    features = set(registry.get(f"cpu:{name}").hardware.features)
    assert {"avx512bw"} & features == {"avx512bw"} & instructions and ("avx2" in features) == (name != "sandybridge")
