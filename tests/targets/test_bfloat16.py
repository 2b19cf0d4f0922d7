"""Conversions to and from bfloat16: right for every exponent and tie, with an instruction and without."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from search_space import te
from search_space.space import generate, make_program
from search_space.workloads import Workload
from targets import registry
from targets.cpu.target import CpuTarget

TINY = np.finfo(np.float32).tiny
UPPER = np.arange(1 << 16, dtype=np.uint32) << 16
LOWER = np.uint32([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
"""Lower halves of a number: zero, next to zero, and both sides of a tie."""


def convert(values: np.ndarray, dtype: str, target: CpuTarget) -> np.ndarray:
    x = te.placeholder(values.shape, str(values.dtype), "x")
    workload = Workload.of([x, te.compute(values.shape, lambda i: x[i].astype(dtype), name="y")])
    sketch = generate(workload, target.hardware).sketches[0]
    choices = np.zeros((1, len(sketch.groups)), np.int32)
    module = target.build(make_program(workload, sketch.algorithm, sketch.trace(choices[0])))
    return target.load(module).bind([values]).run()


@pytest.fixture(scope="module", params=["cpu", "cpu:haswell", "cpu:x86-64"])
def target(request: pytest.FixtureRequest) -> CpuTarget:
    return registry.get(request.param)


@pytest.mark.parametrize("left_over", [0, 3])  # lanes behind the last whole vector are converted one by one
def test_rounding_is_to_nearest_and_keeps_infinity_and_nan(target: CpuTarget, left_over: int) -> None:
    bits = (UPPER[:, None] | LOWER).reshape(-1)
    values = np.concatenate([bits, bits[:left_over]]).view(np.float32)
    found = convert(values, "bfloat16", target).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    if "avx512bf16" in target.hardware.features:  # the instruction takes what is below all normal numbers for zero
        same |= (np.abs(values) < TINY) & (found == 0)
    assert same.all(), (values[~same][:5], found[~same][:5])
    assert (np.signbit(found) == np.signbit(wanted))[~np.isnan(values)].all()


def test_widening_is_exact(target: CpuTarget) -> None:
    values = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(convert(values, "float32", target), values.astype(np.float32))
